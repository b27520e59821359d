#include "report.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "settings.h"

namespace emulator {
namespace {

constexpr size_t max_reports = 200;

struct Findings {
  std::mutex mutex;
  std::vector<Report> list;
  std::unordered_map<std::string, size_t> index;  // kind and text -> place in the list
};
Findings& findings() {
  static Findings instance;
  return instance;
}

void print(const std::string& kind, const std::string& text) {
  fprintf(stderr, "metal emulator: %s: %s\n", kind.c_str(), text.c_str());
}

}  // namespace

void report(const std::string& kind, const std::string& text) {
  Findings& f = findings();
  std::lock_guard lock(f.mutex);
  auto [place, is_new] = f.index.try_emplace(kind + '\t' + text, f.list.size());
  if (!is_new) {
    f.list[place->second].count++;
    return;
  }
  if (f.list.size() < max_reports) {
    f.list.push_back({kind, text, 1});
  } else {
    // The last place counts what the list has no room for.
    place->second = max_reports;
    if (f.list.size() == max_reports) f.list.push_back({"more", "further findings that the list had no room for", 0});
    f.list[max_reports].count++;
  }
  if (settings().print || settings().trap) print(kind, text);
  if (settings().trap) abort();
}

std::vector<Report> take_reports() {
  Findings& f = findings();
  std::lock_guard lock(f.mutex);
  f.index.clear();
  return std::exchange(f.list, {});
}

}  // namespace emulator
