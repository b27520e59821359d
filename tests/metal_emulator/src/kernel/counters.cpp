#include "counters.h"

#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "buffer_table.h"

namespace emulator {
namespace {

constexpr size_t kept_records = 100000;

struct Totals {
  std::mutex mutex;
  std::deque<DispatchRecord> records;
  Traffic traffic;
  std::map<BufferId, Traffic> by_buffer;
};
Totals& totals() {
  static Totals instance;
  return instance;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + '"';
}

std::string number(const char* name, uint64_t value) { return quoted(name) + ": " + std::to_string(value); }

std::string fields(const Traffic& t) {
  return number("requested_read", t.requested_read) + ", " + number("requested_written", t.requested_written) + ", " +
         number("unique_read", t.unique_read) + ", " + number("unique_written", t.unique_written);
}

std::string buffer_fields(BufferId id, const std::string& label, const Traffic& t) {
  return number("buffer", id) + ", \"label\": " + quoted(label) + ", " + fields(t);
}

/// Elements joined by commas, in brackets.
template <class List, class Text>
std::string array(const List& list, Text text) {
  std::string out = "[";
  for (const auto& element : list) out += (out.size() > 1 ? ",\n " : "") + text(element);
  return out + "]";
}

std::string record_text(const DispatchRecord& r) {
  return "{" + number("sequence", r.sequence) + ", \"kernel\": " + quoted(r.kernel) +
         ", \"label\": " + quoted(r.label) + ", " + number("threads", r.threads) + ", " + fields(r.traffic) +
         ", \"buffers\": " +
         array(r.buffers,
               [](const BufferTraffic& b) { return "{" + buffer_fields(b.buffer, b.label, b.traffic) + "}"; }) +
         "}";
}

/// Bytes touched since the reset; of a freed buffer, those until its end.
uint64_t touched(const uint8_t* flags, const BufferEntry& entry, uint64_t at_end) {
  return flags ? count_flags(flags, entry.length, touched_ever) : at_end;
}

}  // namespace

Traffic& Traffic::operator+=(const Traffic& o) {
  requested_read += o.requested_read;
  requested_written += o.requested_written;
  unique_read += o.unique_read;
  unique_written += o.unique_written;
  return *this;
}

Calls& calls() {
  static Calls instance;
  return instance;
}

void record_dispatch(DispatchRecord record) {
  Totals& t = totals();
  std::lock_guard lock(t.mutex);
  t.traffic += record.traffic;
  for (const BufferTraffic& b : record.buffers) t.by_buffer[b.buffer] += b.traffic;
  t.records.push_back(std::move(record));
  if (t.records.size() > kept_records) t.records.pop_front();
}

std::string counters_json() {
  Totals& t = totals();
  std::lock_guard lock(t.mutex);
  uint64_t touched_read = 0, touched_written = 0;
  std::string buffers = array(t.by_buffer, [&](const auto& item) {
    const BufferEntry* entry = find_entry(item.first);
    const uint64_t read = entry ? touched(entry->read_flags, *entry, entry->ever_read) : 0;
    const uint64_t written = entry ? touched(entry->write_flags, *entry, entry->ever_written) : 0;
    touched_read += read;
    touched_written += written;
    return "{" + buffer_fields(item.first, entry ? entry->label : "", item.second) + ", " +
           number("touched_read", read) + ", " + number("touched_written", written) + "}";
  });
  const Calls& c = calls();
  std::string out = "{";
  for (auto& [name, value] :
       std::initializer_list<std::pair<const char*, uint64_t>>{{"command_buffers", c.command_buffers},
                                                               {"encoders", c.encoders},
                                                               {"barriers", c.barriers},
                                                               {"host_waits", c.host_waits},
                                                               {"readbacks", c.readbacks},
                                                               {"inline_bytes", c.inline_bytes},
                                                               {"new_buffers", c.new_buffers},
                                                               {"newest_language", c.newest_language},
                                                               {"encode_ns", c.encode_ns},
                                                               {"method_ns", c.method_ns},
                                                               {"dispatches", c.dispatches},
                                                               {"threads", c.threads},
                                                               {"simd_operations", c.simd_operations},
                                                               {"threadgroup_barriers", c.threadgroup_barriers},
                                                               {"touched_read", touched_read},
                                                               {"touched_written", touched_written}})
    out += number(name, value) + ", ";
  return out + fields(t.traffic) + ",\n\"buffers\": " + buffers +
         ",\n\"dispatch_list\": " + array(t.records, record_text) + "}";
}

void reset_counters() {
  Totals& t = totals();
  std::lock_guard lock(t.mutex);
  t.records.clear();
  t.traffic = {};
  t.by_buffer.clear();
  Calls& c = calls();
  for (auto* value : {&c.command_buffers, &c.encoders, &c.barriers, &c.host_waits, &c.readbacks, &c.inline_bytes,
                      &c.new_buffers, &c.newest_language, &c.encode_ns, &c.method_ns, &c.dispatches, &c.threads,
                      &c.simd_operations, &c.threadgroup_barriers})
    *value = 0;
  for (BufferId id = 1; id <= last_buffer_id(); id++) {
    BufferEntry* entry = find_entry(id);
    if (entry->read_flags && entry->flagged) {
      memset(entry->read_flags, 0, entry->length);
      memset(entry->write_flags, 0, entry->length);
      entry->flagged = false;
    }
  }
}

}  // namespace emulator
