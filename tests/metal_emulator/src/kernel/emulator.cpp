// The C functions of emulator.h.
#include "emulator.h"

#include <string>

#include "counters.h"
#include "report.h"
#include "settings.h"

extern "C" {

int emulator_set(const char* name, const char* value) { return emulator::set(name, value) ? 0 : -1; }

const char* emulator_reports(void) {
  static thread_local std::string text;
  text.clear();
  for (const emulator::Report& r : emulator::take_reports())
    text += r.kind + '\t' + std::to_string(r.count) + '\t' + r.text + '\n';
  return text.c_str();
}

const char* emulator_counters(int reset) {
  static thread_local std::string text;
  text = emulator::counters_json();
  if (reset) emulator::reset_counters();
  return text.c_str();
}
}
