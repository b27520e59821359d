#pragma once
// The folder of compiled kernel libraries: <hash>.so. Files appear by rename, so processes may share it.

#include <filesystem>
#include <string>

namespace emulator {

/// 32 hex digits.
std::string hash_text(const std::string& text);

/// SARAGOSSA_METAL_EMULATOR_CACHE, else in the user's cache folder. Created where missing.
std::filesystem::path cache_folder();

/// Where the library of this hash lies; empty where it is not there. Marks it as used.
std::filesystem::path find_cached(const std::string& hash);

/// A fresh folder within the cache that goes when its owner does.
struct TemporaryFolder {
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path path;
};

/// Moves `built` to its place and drops the libraries unused for longest beyond 1 GB.
std::filesystem::path keep_in_cache(const std::filesystem::path& built, const std::string& hash);

}  // namespace emulator
