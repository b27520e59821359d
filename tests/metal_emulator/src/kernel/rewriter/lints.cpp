// What Apple's front end refuses and clang would take.
#include "program.h"

namespace emulator::rewriter {
namespace {

const std::set<std::string>& absent_words() {
  static const std::set<std::string> words = {"double", "new",     "delete",       "throw",  "try",     "catch",
                                              "goto",   "virtual", "dynamic_cast", "typeid", "std",     "thread_local",
                                              "printf", "malloc",  "free",         "asm",    "register"};
  return words;
}

bool is_space(const Source& s, int i) {
  return s.is(i, "device") || s.is(i, "constant") || s.is(i, "threadgroup") || s.is(i, "thread") ||
         s.is(i, "object_data") || s.is(i, "ray_data");
}

/// Names of types: built in, declared, template parameters.
std::set<std::string> type_names(const Source& s) {
  std::set<std::string> types = {"uint8_t",    "int8_t",       "uint16_t",   "int16_t", "uint32_t",
                                 "int32_t",    "uint64_t",     "int64_t",    "size_t",  "atomic_uint",
                                 "atomic_int", "atomic_float", "atomic_bool"};
  for (const char* base :
       {"float", "half", "bfloat", "int", "uint", "short", "ushort", "char", "uchar", "long", "ulong", "bool"}) {
    types.insert(base);
    for (const char* n : {"2", "3", "4"}) {
      types.insert(std::string(base) + n);
      types.insert(std::string("packed_") + base + n);
    }
  }
  for (int i = 0; i < s.size(); i++) {
    const bool declares = s.is(i, "struct") || s.is(i, "class") || s.is(i, "typename") || s.is(i, "using");
    const int name = s.next(i);
    if (!declares || !s.is_identifier(name) || s.is(name, "namespace")) continue;
    if (s.is(i, "typename") && s.is(s.next(name), "::")) continue;
    types.insert(s.tokens[name].text);
  }
  return types;
}

/// `T *` or `T &` at i: does an address space stand before the type (or behind it)?
bool has_space(const Source& s, int i) {
  int at = s.previous(i);
  for (int steps = 0; at >= 0 && steps < 12; steps++, at = s.previous(at)) {
    if (is_space(s, at)) return true;
    if (s.tokens[at].kind != TokenKind::identifier && !s.is(at, "::") && !s.is(at, ">")) return false;
  }
  return false;
}

void check_pointer(Program& program, int i) {
  const Source& s = program.source;
  const int mark = s.next(i);
  if (!s.is(mark, "*") && !s.is(mark, "&")) return;
  // A product such as (a.half * b) has no type before the mark; after a dot or a number it is no type.
  const int before = s.previous(i);
  if (s.is(before, ".") || s.is(before, "->") || s.is(before, "sizeof")) return;
  if (is_space(s, s.next(mark)) || has_space(s, i)) return;
  program.lint(i, "pointer or reference to '" + s.tokens[i].text +
                      "' without an address space (device, constant, threadgroup, thread)");
}

/// Function definitions: every pointer parameter, whatever its type is called.
void check_parameters(Program& program, int name) {
  static const std::set<std::string> no_function = {"return", "if",   "for",      "while",   "switch",   "else", "do",
                                                    "sizeof", "case", "decltype", "alignas", "template", "catch"};
  const Source& s = program.source;
  const int open = s.next(name), close = s.match(open), before = s.previous(name);
  if (!s.is(open, "(") || close < 0 || no_function.count(s.tokens[name].text)) return;
  const bool typed = before >= 0 &&
                     (s.is_identifier(before) || s.is(before, ">") || s.is(before, "*") || s.is(before, "&")) &&
                     !no_function.count(s.tokens[before].text);
  int body = s.next(close);
  if (s.is(body, "const")) body = s.next(body);
  if (!typed || !s.is(body, "{")) return;
  for (auto [begin, end] : s.split(open + 1, close)) {
    bool pointer = false, space = false;
    for (int i = begin; i < end && !s.is(i, "="); i++) {
      pointer |= s.is(i, "*") || s.is(i, "&");
      space |= is_space(s, i);
    }
    if (pointer && !space)
      program.lint(begin,
                   "function " + s.tokens[name].text + ": a pointer or reference parameter has no address space");
  }
}

void check_static(Program& program, int i) {
  const Source& s = program.source;
  const int end = s.find(i, ";={(");
  if (!s.is(end, "=")) return;
  for (int j = i; j < end; j++)
    if (s.is(j, "constexpr") || s.is(j, "const") || s.is(j, "constant")) return;
  program.lint(i, "a static variable: Metal has no mutable ones, use constant or constexpr");
}

}  // namespace

void check_language(Program& program, int language) {
  struct Row {
    const char* prefix;
    int language;
  };
  static constexpr Row kRows[] = {{"bfloat", 310},        {"atomic_thread_fence", 320},
                                  {"thread_scope", 320},  {"matmul2d", 400},
                                  {"tensor_handle", 400}, {"tensor_inline", 400},
                                  {"tensor_offset", 400}, {"required_threads_per_threadgroup", 400}};
  const auto text_of = [](int n) { return std::to_string(n / 100) + "." + std::to_string(n / 10 % 10); };
  const Source& s = program.source;
  for (int i = 0; i < s.size(); i++)
    for (const Row& row : kRows)
      if (language < row.language && s.is_identifier(i) && s.tokens[i].text.rfind(row.prefix, 0) == 0)
        program.lint(i, "'" + s.tokens[i].text + "' needs Metal " + text_of(row.language) + ", this library is of " +
                            text_of(language));
}

void check_words(Program& program) {
  const Source& s = program.source;
  for (int i = 0; i < s.size(); i++) {
    if (!s.is_identifier(i)) continue;
    if (absent_words().count(s.tokens[i].text)) program.lint(i, "'" + s.tokens[i].text + "' does not exist in Metal");
    if (s.is(i, "static")) check_static(program, i);
  }
  // A lambda: [ .. ] ( .. ) { where an expression may begin.
  for (int i = 0; i < s.size(); i++) {
    if (!s.is(i, "[") || s.is_attribute(i) || s.match(i) < 0) continue;
    const int before = s.previous(i), after = s.next(s.match(i));
    const bool expression = s.is(before, "=") || s.is(before, "(") || s.is(before, ",") || s.is(before, "return");
    if (expression && s.is(after, "(") && s.is(s.next(s.match(after)), "{"))
      program.lint(i, "a lambda: older compilers of Metal have none, write a function or a struct");
  }
}

void check_address_spaces(Program& program) {
  const std::set<std::string> types = type_names(program.source);
  for (int i = 0; i < program.source.size(); i++) {
    if (!program.source.is_identifier(i)) continue;
    if (types.count(program.source.tokens[i].text)) check_pointer(program, i);
    check_parameters(program, i);
  }
}

}  // namespace emulator::rewriter
