#include "settings.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace emulator {
namespace {

bool parse(const std::string& text, uint64_t& value) {
  char* end = nullptr;
  value = strtoull(text.c_str(), &end, 0);
  return !text.empty() && *end == 0;
}

bool parse(const std::string& text, int& value) {
  char* end = nullptr;
  value = static_cast<int>(strtol(text.c_str(), &end, 0));
  return !text.empty() && *end == 0;
}

bool parse(const std::string& text, bool& value) {
  value = text == "1" || text == "on";
  return value || text == "0" || text == "off" || text.empty();
}

bool parse(const std::string& text, std::string& value) {
  value = text;
  return true;
}

bool parse(const std::string& text, Order& value) {
  if (text == "in_order")
    value = Order::in_order;
  else if (text == "reversed")
    value = Order::reversed;
  else if (text == "random")
    value = Order::random;
  else
    return false;
  return true;
}

bool parse_version(const std::string& text, Settings& s) {
  return sscanf(text.c_str(), "%d.%d", &s.os_major, &s.os_minor) == 2;
}

/// One row a setting; the environment and emulator_set read the same table.
template <class Visit>
bool visit(Settings& s, Visit&& row) {
  return row("order", s.order) || row("seed", s.seed) || row("workers", s.workers) || row("reorder", s.reorder) ||
         row("execute", s.execute) || row("ftz", s.ftz) || row("check", s.check) || row("trace", s.trace) ||
         row("trap", s.trap) || row("print", s.print) || row("perturb_fast", s.perturb_fast) ||
         row("shuffle_cooperative", s.shuffle_cooperative) ||
         row("max_threads_per_threadgroup", s.max_threads_per_threadgroup) ||
         row("threadgroup_memory", s.threadgroup_memory) || row("gpu_family", s.gpu_family) ||
         row("reported_simd_width", s.reported_simd_width) || row("fail_allocation", s.fail_allocation) ||
         row("fail_command_buffer", s.fail_command_buffer) || row("fail_compile", s.fail_compile) ||
         row("fail_pipeline", s.fail_pipeline) || row("device", s.device) ||
         row("working_set_mib", s.working_set_mib) || row("max_buffer_mib", s.max_buffer_mib) ||
         row("lazy_ms", s.lazy_ms) || row("late_status", s.late_status) || row("miscompile", s.miscompile) ||
         row("fail_compile_of", s.fail_compile_of) || row("command_buffer_error", s.command_buffer_error);
}

const char* from_environment(const char* name) {
  std::string variable = "SARAGOSSA_METAL_EMULATOR_";
  for (const char* c = name; *c; c++) variable += static_cast<char>(toupper(static_cast<unsigned char>(*c)));
  return getenv(variable.c_str());
}

void refuse(const char* name, const char* value) {
  fprintf(stderr, "metal emulator: setting %s has no value '%s'; see settings.h\n", name, value);
  abort();
}

Settings read_environment() {
  Settings s;
  visit(s, [](const char* name, auto& field) {
    const char* value = from_environment(name);
    if (value && !parse(value, field)) refuse(name, value);
    return false;  // go on with the next row
  });
  const char* version = from_environment("os_version");
  if (version && !parse_version(version, s)) refuse("os_version", version);
  return s;
}

}  // namespace

Settings& settings() {
  static Settings instance = read_environment();
  return instance;
}

bool set(const std::string& name, const std::string& value) {
  Settings changed = settings();
  bool good = false;
  if (name == "os_version")
    good = parse_version(value, changed);
  else
    good = visit(changed, [&](const char* row, auto& field) { return name == row && parse(value, field); });
  if (good) settings() = changed;
  return good;
}

bool fails_now(int& countdown) {
  if (countdown < 0) return false;
  return countdown-- == 0;
}

}  // namespace emulator
