#include "cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace emulator {
namespace fs = std::filesystem;
namespace {

constexpr uintmax_t max_bytes = uintmax_t{1} << 30;

uint64_t fnv1a(const std::string& text, uint64_t hash) {
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211ull;
  return hash;
}

struct CachedFile {
  fs::file_time_type used;
  uintmax_t bytes;
  fs::path path;
};

void drop_oldest(const fs::path& folder) {
  std::vector<CachedFile> files;
  uintmax_t total = 0;
  std::error_code error;  // another process may remove files meanwhile
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".so") continue;
    const uintmax_t bytes = entry.file_size(error);
    if (error) continue;
    files.push_back({entry.last_write_time(error), bytes, entry.path()});
    total += bytes;
  }
  if (total <= max_bytes) return;
  std::sort(files.begin(), files.end(), [](const CachedFile& a, const CachedFile& b) { return a.used < b.used; });
  for (const CachedFile& file : files) {
    if (total <= max_bytes) break;
    fs::remove(file.path, error);
    total -= file.bytes;
  }
}

}  // namespace

std::string hash_text(const std::string& text) {
  char digits[33];
  snprintf(digits, sizeof digits, "%016llx%016llx",
           static_cast<unsigned long long>(fnv1a(text, 14695981039346656037ull)),
           static_cast<unsigned long long>(fnv1a(text, 0x6c62272e07bb0142ull)));
  return digits;
}

fs::path cache_folder() {
  fs::path folder;
  if (const char* named = getenv("SARAGOSSA_METAL_EMULATOR_CACHE"))
    folder = named;
  else if (const char* xdg = getenv("XDG_CACHE_HOME"))
    folder = fs::path(xdg) / "saragossa-metal-emulator";
  else if (const char* home = getenv("HOME"))
    folder = fs::path(home) / ".cache" / "saragossa-metal-emulator";
  else
    folder = fs::temp_directory_path() / "saragossa-metal-emulator";
  std::error_code error;
  fs::create_directories(folder, error);  // what fails shows when the compiler writes
  return folder;
}

fs::path find_cached(const std::string& hash) {
  const fs::path path = cache_folder() / (hash + ".so");
  std::error_code error;
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  return error ? fs::path() : path;
}

TemporaryFolder::TemporaryFolder() {
  static std::atomic<int> count{0};
  path = cache_folder() / ("build." + std::to_string(getpid()) + "." + std::to_string(count++));
  std::error_code error;
  fs::create_directories(path, error);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path, error);
}

fs::path keep_in_cache(const fs::path& built, const std::string& hash) {
  const fs::path place = cache_folder() / (hash + ".so");
  fs::rename(built, place);
  drop_oldest(place.parent_path());
  return place;
}

}  // namespace emulator
