// threadgroup variables, function constants, member functions by address space.
#include "program.h"

namespace emulator::rewriter {
namespace {

bool begins_statement(const Source& s, int i) {
  const int before = s.previous(i);
  return before < 0 || s.is(before, ";") || s.is(before, "{") || s.is(before, "}");
}

bool in_kernel_body(const Program& program, int i) {
  for (const KernelFunction& k : program.kernels)
    if (i > k.body && i < program.source.match(k.body)) return true;
  return false;
}

/// Has [begin, end) a * or & outside of brackets?
bool is_pointer(const Source& s, int begin, int end) {
  for (int i = begin; i < end; i++) {
    if (s.opens(i) && s.match(i) > 0)
      i = s.match(i);
    else if (s.is(i, "<"))
      i = s.after_angles(i) - 1;
    else if (s.is(i, "*") || s.is(i, "&"))
      return true;
  }
  return false;
}

/// `threadgroup T a[N], b;` -> references into the threadgroup's memory.
void rewrite_threadgroup_variable(Program& program, int i, int number) {
  Source& s = program.source;
  const int end = s.find(i, ";=");
  if (is_pointer(s, i, end)) return;  // threadgroup T* p = ..: a pointer of the thread
  if (s.is(end, "=")) return program.lint(i, "a threadgroup variable cannot have an initialiser");
  if (!in_kernel_body(program, i)) return program.lint(i, "a threadgroup variable stands outside of a kernel's body");
  std::string type, out;
  for (auto [begin, stop] : s.split(i + 1, end)) {
    int brackets = begin;
    while (brackets < stop && !s.is(brackets, "["))
      brackets = s.is(brackets, "<") ? s.after_angles(brackets) : brackets + 1;
    const int name = s.previous(brackets);
    if (type.empty()) type = s.text(begin, name);
    const std::string alias = "emulator_type_" + std::to_string(number) + "_" + s.tokens[name].text;
    const std::string variable = s.tokens[name].text;
    out += "typedef " + type + " " + alias + s.text(brackets, stop) + "; ";
    if (program.strict)
      out += "__local " + alias + "& " + variable + " = *(__local " + alias + "*)0; ";
    else
      out += alias + "& " + variable + " = emulator_glue::threadgroup_variable<" + alias + ">([]{}, \"" + variable +
             "\"); ";
  }
  out.erase(out.rfind(';'));  // the declaration's own ends it
  s.replace(i, end, out);
}

/// `constant bool c [[function_constant(0)]];`
bool rewrite_function_constant(Program& program, int i) {
  Source& s = program.source;
  int attribute = i;
  while (attribute < s.size() && !s.is_attribute(attribute) && !s.is(attribute, ";") && !s.is(attribute, "{") &&
         !s.is(attribute, "(") && !s.is(attribute, "="))
    attribute++;
  if (!s.is_attribute(attribute) || !s.is(s.next(attribute + 1), "function_constant")) return false;
  const int bracket = s.next(s.next(attribute + 1)), name = s.previous(attribute);
  FunctionConstantDeclaration c;
  c.index = s.text(bracket + 1, s.match(bracket));
  c.name = s.tokens[name].text;
  c.type = s.text(s.next(i), name);
  const std::string value = "static const " + c.type + " " + c.name + " = ";
  const std::string out = program.strict ? "__constant " + c.type + " " + c.name + " = 0"
                                         : "static const bool emulator_defined_" + c.name +
                                               " = emulator_constant_defined(" + c.index + "); " + value +
                                               "emulator_glue::constant_value<" + c.type + ">(" + c.index + ")";
  program.constants.push_back(c);
  s.replace(i, s.find(attribute, ";"), out);
  return true;
}

void rewrite_question(Program& program, int i) {
  Source& s = program.source;
  const int open = s.next(i), close = s.match(open);
  const std::string name = s.text(open + 1, close);
  for (FunctionConstantDeclaration& c : program.constants) c.asked |= c.name == name;
  s.replace(i, close + 1, program.strict ? "(true)" : "(emulator_defined_" + name + ")");
}

/// `T f() const device { .. }`: one of several overloads that differ in the object's address space. The one without
/// stays for all. Erases from the declaration's start.
void drop_overload(Source& s, int i) {
  int before = s.previous(i);
  if (s.is(before, "const")) before = s.previous(before);
  const int body = s.next(i);
  if (!s.is(body, "{") || !s.is(before, ")")) return;
  int start = s.match(before), at = s.previous(start);
  while (at >= 0 && !s.is(at, ";") && !s.is(at, "}") && !s.is(at, "{") && !s.is(at, ":")) {
    start = s.match(at) >= 0 && s.match(at) < at ? s.match(at) : at;
    at = s.previous(start);
  }
  s.erase(start, s.match(body) + 1);
}

}  // namespace

void rewrite_variables(Program& program) {
  Source& s = program.source;
  for (int i = 0; i < s.size(); i++) {
    if (!s.is_identifier(i)) continue;
    const bool space = s.is(i, "threadgroup") || s.is(i, "device") || s.is(i, "constant");
    if (space && !program.strict) drop_overload(s, i);
    if (s.is(i, "threadgroup") && begins_statement(s, i)) rewrite_threadgroup_variable(program, i, i);
  }
}

void rewrite_constants(Program& program) {
  Source& s = program.source;
  for (int i = 0; i < s.size(); i++) {
    if (s.is(i, "constant")) rewrite_function_constant(program, i);
    if (s.is(i, "is_function_constant_defined")) rewrite_question(program, i);
  }
}

}  // namespace emulator::rewriter
