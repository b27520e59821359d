#include "rewriter.h"

#include <cstring>

#include "program.h"

namespace emulator::rewriter {
namespace {

Program run_passes(const std::string& preprocessed, bool strict) {
  Program program{Source(preprocessed), strict, {}, {}, {}, {}};
  check_words(program);
  find_instantiations(program);
  find_kernels(program);
  remove_attributes(program);
  check_address_spaces(program);
  return program;
}

bool is_vector_name(const std::string& s) {
  if (s.size() < 4 || !strchr("234", s.back())) return false;
  const std::string base = s.substr(0, s.size() - 1);
  for (const char* name :
       {"float", "half", "bfloat", "int", "uint", "short", "ushort", "char", "uchar", "long", "ulong", "bool"})
    if (base == name) return true;
  return false;
}

/// OpenCL's vectors have no constructors: float4(a, b) -> make_vector<float4>(a, b), vec<T, 4>(a) likewise.
void rewrite_vector_constructors(Source& s) {
  for (int i = 0; i < s.size(); i++) {
    if (!s.is_identifier(i)) continue;
    const int after = s.next(i);
    if (is_vector_name(s.tokens[i].text) && s.is(after, "(")) {
      s.tokens[i].text = "make_vector<" + s.tokens[i].text + ">";
    } else if (s.is(i, "vec") && s.is(after, "<")) {
      const int close = s.after_angles(after) - 1;
      if (!s.is(s.next(close), "(")) continue;
      s.tokens[i].text = "make_vector<vec";
      s.tokens[close].text = ">>";
    }
  }
}

/// matmul2d<descriptor, scope> -> matmul2d<0, scope>, see strict_tensor.h.
void rewrite_descriptors(Source& s) {
  for (int i = 0; i < s.size(); i++) {
    const int open = s.next(i);
    if (!s.is(i, "matmul2d") || !s.is(open, "<")) continue;
    const auto arguments = s.split(open + 1, s.after_angles(open) - 1);
    if (!arguments.empty()) s.replace(arguments[0].first, arguments[0].second, "0");
  }
}

}  // namespace

Rewritten rewrite(const std::string& preprocessed, int language) {
  Program program = run_passes(preprocessed, false);
  check_language(program, language);
  const Reached reached = names_of_kernels(program);
  rewrite_constants(program);
  rewrite_variables(program);
  const std::string tables = library_tables(program, reached);
  return {"#include \"emulator/library.h\"\n" + program.source.whole() + tables, program.lints};
}

Rewritten rewrite_strict(const std::string& preprocessed) {
  Program program = run_passes(preprocessed, true);
  rewrite_constants(program);
  rewrite_variables(program);
  rewrite_vector_constructors(program.source);
  rewrite_descriptors(program.source);
  std::string text = "#include \"emulator/strict.h\"\n" + program.source.whole() + "\n# 1 \"<instantiations>\"\n";
  for (const Instantiation& i : program.instantiations)
    text += "template decltype(" + i.function + ") " + i.function + ";\n";
  return {text, program.lints};
}

}  // namespace emulator::rewriter
