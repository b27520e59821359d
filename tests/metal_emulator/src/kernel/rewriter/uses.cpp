// Which function constants a kernel needs: those whose names occur in its body, in functions that it names, or in
// constants that it names. By name alone, so an overload that is not called counts, too.
#include "program.h"

namespace emulator::rewriter {
namespace {

using Names = std::set<std::string>;

Names identifiers(const Source& s, int begin, int end) {
  Names names;
  for (int i = begin; i < end; i++)
    if (s.is_identifier(i)) names.insert(s.tokens[i].text);
  return names;
}

/// What each function body and each initialiser at program scope mentions.
std::map<std::string, Names> mentions(const Source& s) {
  std::map<std::string, Names> result;
  for (int i = 0; i < s.size(); i++) {
    if (!s.is_identifier(i)) continue;
    const int after = s.next(i);
    if (s.is(after, "(") && s.match(after) > 0) {
      int body = s.next(s.match(after));
      if (s.is(body, "const")) body = s.next(body);
      if (s.is(body, "{")) result[s.tokens[i].text].merge(identifiers(s, after, s.match(body)));
    } else if (s.is(after, "=")) {
      result[s.tokens[i].text].merge(identifiers(s, after, s.find(after, ";")));
    }
  }
  return result;
}

void reach(const std::string& name, const std::map<std::string, Names>& mentioned, Names& reached) {
  if (!reached.insert(name).second) return;
  const auto at = mentioned.find(name);
  if (at == mentioned.end()) return;
  for (const std::string& next : at->second) reach(next, mentioned, reached);
}

}  // namespace

Reached names_of_kernels(const Program& program) {
  Reached result;
  const std::map<std::string, Names> mentioned = mentions(program.source);
  for (const KernelFunction& kernel : program.kernels) {
    Names& reached = result[kernel.name];
    reach(kernel.name, mentioned, reached);
    for (const KernelParameter& p : kernel.parameters) reach(p.active, mentioned, reached);
  }
  return result;
}

}  // namespace emulator::rewriter
