// Kernel functions: their signatures, explicit instantiations, attributes.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>

#include "program.h"

namespace emulator::rewriter {
namespace {

/// Attributes of parameters that stand for a number the runtime knows.
const std::map<std::string, std::string>& builtin_attributes() {
  static const std::map<std::string, std::string> table = [] {
    std::map<std::string, std::string> t;
    for (const char* name :
         {"thread_position_in_grid", "thread_position_in_threadgroup", "threadgroup_position_in_grid",
          "threads_per_threadgroup", "dispatch_threads_per_threadgroup", "threadgroups_per_grid", "threads_per_grid",
          "thread_index_in_threadgroup", "thread_index_in_simdgroup", "simdgroup_index_in_threadgroup",
          "simdgroups_per_threadgroup", "dispatch_simdgroups_per_threadgroup", "threads_per_simdgroup",
          "thread_index_in_quadgroup", "quadgroup_index_in_threadgroup", "quadgroups_per_threadgroup"})
      t[name] = std::string("kind_") + name;
    t["thread_execution_width"] = "kind_threads_per_simdgroup";
    return t;
  }();
  return table;
}

bool is_address_space(const Source& s, int i) {
  return s.is(i, "device") || s.is(i, "constant") || s.is(i, "threadgroup") || s.is(i, "thread");
}

/// Calls visit(name, argument, token) for each attribute in [[..]] at `open`.
void each_attribute(const Source& s, int open,
                    const std::function<void(const std::string&, const std::string&, int)>& visit) {
  const int end = s.match(open) - 1;
  for (int i = s.next(open + 1); i < end; i = s.next(i)) {
    if (!s.is_identifier(i)) continue;
    const int bracket = s.next(i);
    std::string argument;
    if (s.is(bracket, "(")) argument = s.text(bracket + 1, s.match(bracket));
    visit(s.tokens[i].text, argument, i);
    if (s.is(bracket, "(")) i = s.match(bracket);
  }
}

/// Reads max_total_threads_per_threadgroup from attributes at i, erases them, returns the token behind.
int take_function_attributes(Program& program, int i, KernelFunction& kernel) {
  Source& s = program.source;
  while (s.is_attribute(i)) {
    each_attribute(s, i, [&](const std::string& name, const std::string& argument, int) {
      if (name == "max_total_threads_per_threadgroup") kernel.max_total_threads = argument;
    });
    const int end = s.match(i);
    s.erase(i, end + 1);
    i = s.next(end);
  }
  return i;
}

class SignatureReader {
 public:
  SignatureReader(Program& program, KernelFunction& kernel) : p_(program), s_(program.source), kernel_(kernel) {}

  void read(int open) {
    for (auto [begin, end] : s_.split(open + 1, s_.match(open))) parameter(begin, end);
  }

 private:
  void parameter(int begin, int end) {
    KernelParameter result;
    bool pointer = false, address_space = false;
    int name_end = end;
    for (int i = begin; i < end; i++) {
      if (s_.is_attribute(i)) {
        each_attribute(s_, i, [&](const std::string& name, const std::string& argument, int token) {
          attribute(result, name, argument, token);
        });
        name_end = std::min(name_end, i);
        const int close = s_.match(i);
        s_.erase(i, close + 1);
        i = close;
      }
      pointer |= s_.is(i, "*") || s_.is(i, "&");
      address_space |= is_address_space(s_, i);
    }
    int name = s_.previous(name_end);
    while (name > begin && !s_.is_identifier(name)) name = s_.previous(name);
    result.name = s_.tokens[name].text;
    const std::string where = "kernel " + kernel_.name + ": parameter '" + result.name + "' ";
    if (result.kind == "kind_unknown")
      p_.lint(name, where + (pointer ? "has no [[buffer(n)]] or [[threadgroup(n)]]" : "has no attribute"));
    if (pointer && !address_space) p_.lint(name, where + "needs device, constant or threadgroup");
    kernel_.parameters.push_back(result);
  }

  void attribute(KernelParameter& parameter, const std::string& name, const std::string& argument, int token) {
    const auto builtin = builtin_attributes().find(name);
    if (name == "buffer")
      buffer(parameter, argument, token);
    else if (name == "threadgroup")
      parameter.kind = "kind_threadgroup_buffer", parameter.index = argument;
    else if (name == "function_constant")
      parameter.active = argument;
    else if (builtin != builtin_attributes().end())
      parameter.kind = builtin->second;
    else
      p_.lint(token, "kernel " + kernel_.name + ": attribute [[" + name + "]] is not known to the emulator");
  }

  void buffer(KernelParameter& parameter, const std::string& argument, int token) {
    parameter.kind = "kind_buffer";
    parameter.index = argument;
    const std::string what = "kernel " + kernel_.name + ": [[buffer(" + argument + ")]] ";
    if (!used_.insert(argument).second) p_.lint(token, what + "stands twice");
    if (!argument.empty() && isdigit(static_cast<unsigned char>(argument[0])) && atoi(argument.c_str()) > 30)
      p_.lint(token, what + "is above 30");
  }

  Program& p_;
  Source& s_;
  KernelFunction& kernel_;
  std::set<std::string> used_;
};

/// The first of the attributes that end right before i; i where there is none.
int first_attribute(const Source& s, int i) {
  for (int before = s.previous(i); s.is(before, "]") && s.is_attribute(s.match(before)); before = s.previous(i))
    i = s.match(before);
  return i;
}

/// `i` is the word kernel, alone or in [[..]].
void read_kernel(Program& program, int i) {
  Source& s = program.source;
  KernelFunction kernel;
  int word = i;  // `kernel`, or the attribute that holds it
  if (s.is(s.previous(i), "[") || s.is(s.previous(i), ","))
    while (word > 0 && !s.is_attribute(word)) word--;
  const int begin = first_attribute(s, word);
  kernel.is_template = s.is(s.previous(begin), ">");
  int at = take_function_attributes(program, begin, kernel);
  if (s.is(at, "kernel")) {
    s.tokens[at].text.clear();
    at = take_function_attributes(program, s.next(at), kernel);
  }
  if (!s.is(at, "void")) return program.lint(i, "a kernel returns void");
  const int name = s.next(at), open = s.next(name);
  if (!s.is(open, "(")) return program.lint(i, "no parameter list after the kernel's name");
  kernel.name = s.tokens[name].text;
  SignatureReader(program, kernel).read(open);
  const int body = take_function_attributes(program, s.next(s.match(open)), kernel);
  if (!s.is(body, "{")) return;  // a declaration
  kernel.body = body;
  program.kernels.push_back(kernel);
}

}  // namespace

const KernelFunction* Program::find_kernel(const std::string& name) const {
  for (const KernelFunction& k : kernels)
    if (k.name == name) return &k;
  return nullptr;
}

void find_instantiations(Program& program) {
  Source& s = program.source;
  for (int i = 0; i < s.size(); i++) {
    if (!s.is(i, "template") || !s.is_attribute(s.next(i))) continue;
    std::string host_name;
    bool kernel = false;
    int at = s.next(i);
    for (; s.is_attribute(at); at = s.next(s.match(at)))
      each_attribute(s, at, [&](const std::string& name, const std::string& argument, int) {
        if (name == "host_name") host_name = argument;
        kernel |= name == "kernel";
      });
    if (s.is(at, "kernel")) kernel = true, at = s.next(at);
    const int end = s.find(at, ";");
    // decltype(f<float>) f<float>;  or  void f<float>(parameters);
    at = s.is(at, "decltype") ? s.next(s.match(s.next(at))) : s.next(at);
    int function_end = at;
    while (function_end < end && !s.is(function_end, "("))
      function_end = s.is(function_end, "<") ? s.after_angles(function_end) : function_end + 1;
    if (host_name.empty() || !kernel)
      program.lint(i, "an explicit instantiation needs [[host_name(..)]] and [[kernel]]");
    else
      program.instantiations.push_back({host_name, s.text(at, function_end)});
    s.erase(i, end + 1);
    i = end;
  }
}

void find_kernels(Program& program) {
  for (int i = 0; i < program.source.size(); i++)
    if (program.source.is(i, "kernel")) read_kernel(program, i);
}

/// Attributes outside of kernel signatures, on helpers, say nothing here.
void remove_attributes(Program& program) {
  Source& s = program.source;
  for (int i = 0; i < s.size(); i++) {
    if (!s.is_attribute(i)) continue;
    const std::string& first = s.tokens[s.next(i + 1)].text;
    if (builtin_attributes().count(first) || first == "buffer" || first == "threadgroup" ||
        first == "max_total_threads_per_threadgroup" || first == "host_name") {
      const int close = s.match(i);
      s.erase(i, close + 1);
      i = close;
    }
  }
}

}  // namespace emulator::rewriter
