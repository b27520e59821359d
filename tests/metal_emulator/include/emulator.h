#pragma once
// What tests and benches may ask of the emulator, beside Metal itself. Plain C, for ctypes.
// A returned text belongs to the emulator and holds until the same thread's next call.

#ifdef __cplusplus
extern "C" {
#endif

/// Changes a setting of src/kernel/settings.h by its name in lower case without the prefix:
/// emulator_set("order", "random"). Returns 0, or -1 where name or value is unknown.
int emulator_set(const char* name, const char* value);

/// The findings of the checkers since the last call, one a line: kind, tab, count, tab, text.
/// Taking them empties the list.
const char* emulator_reports(void);

/// Counters as one JSON object (see src/kernel/counters.h); with `reset` they start again at zero.
const char* emulator_counters(int reset);

/// Live Objective-C objects, one class a line: name, tab, count. What a program has created and not released shows
/// here.
const char* emulator_live_objects(void);

#ifdef __cplusplus
}
#endif
