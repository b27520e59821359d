#include "toolchain.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cache.h"
#include "process.h"

namespace emulator {
namespace fs = std::filesystem;
namespace {

std::string compiler() {
  const char* named = getenv("SARAGOSSA_METAL_EMULATOR_CLANG");
  return named ? named : "clang++-19";
}

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// The library's headers are part of what is compiled.
const std::string& headers_hash() {
  static const std::string hash = [] {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(fs::path(header_folder()) / "emulator"))
      files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::string all;
    for (const fs::path& file : files) all += file.filename().string() + '\n' + read_file(file);
    return hash_text(all);
  }();
  return hash;
}

/// Words of the math mode. Nothing that assumes away NaN or infinity: results of fast mode stay comparable.
std::vector<std::string> math_options(MathMode mode) {
  return {mode == MathMode::safe ? "-ffp-contract=on" : "-ffp-contract=fast",
          std::string("-DEMULATOR_FAST_MATH=") + (mode == MathMode::safe ? "0" : "1")};
}

std::vector<std::string> instrumentation(bool instrumented) {
  if (!instrumented) return {"-O2", "-DEMULATOR_INSTRUMENTED=0"};
  // Every load and store of the program becomes a call of a __tsan_ function (hooks.cpp); vectorising would hide their
  // width.
  return {"-O1",
          "-DEMULATOR_INSTRUMENTED=1",
          "-fno-vectorize",
          "-fno-slp-vectorize",
          "-fsanitize=thread",
          "-mllvm",
          "-tsan-instrument-read-before-write=1",
          "-mllvm",
          "-tsan-instrument-func-entry-exit=0"};
}

std::vector<std::string> options(const CompileRequest& request, bool instrumented) {
  std::vector<std::string> words = {
      compiler(), request.language_version >= 400 ? "-std=c++20" : "-std=c++17",
      "-D__METAL_VERSION__=" + std::to_string(request.language_version), "-march=x86-64-v3", "-nostdinc", "-nostdinc++",
      "-fdeclspec", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing", "-fno-math-errno",
      "-fno-trapping-math", "-fvisibility=hidden", "-gline-tables-only",
      "-gdwarf-4",  // addr2line mixes up the files of version 5
      // half and bfloat are rounded after each operation, 1.0 is a float
      "-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none", "-Xclang",
      "-cl-single-precision-constant", "-Wno-user-defined-literals", "-Wno-reserved-user-defined-literal",
      "-Wno-unknown-attributes", "-Wno-duplicate-decl-specifier", "-Wno-unused-command-line-argument"};
  for (auto& list : {math_options(request.math_mode), instrumentation(instrumented)})
    words.insert(words.end(), list.begin(), list.end());
  return words;
}

/// Messages and line markers name the source, not our files (which differ from process to process).
std::string without_folder(std::string log, const fs::path& folder) {
  const std::string prefix = folder.string() + "/";
  for (size_t at; (at = log.find(prefix)) != std::string::npos;) log.erase(at, prefix.size());
  return log;
}

}  // namespace

std::string header_folder() {
  const char* named = getenv("SARAGOSSA_METAL_EMULATOR_HEADERS");
  return named ? named : EMULATOR_MSL_INCLUDE;
}

bool preprocess(const CompileRequest& request, std::string& text, std::string& log,
                const std::vector<std::string>& more) {
  TemporaryFolder folder;
  const fs::path in = folder.path / "source.metal", out = folder.path / "preprocessed";
  std::ofstream(in) << "#line 1 \"" << request.name << "\"\n" << request.source;
  std::vector<std::string> words = {compiler(),
                                    "-E",
                                    "-x",
                                    "c++",
                                    "-std=c++17",
                                    "-nostdinc",
                                    "-nostdinc++",
                                    "-D__METAL_VERSION__=" + std::to_string(request.language_version),
                                    "-I" + header_folder(),
                                    in.string(),
                                    "-o",
                                    out.string()};
  for (const auto& [name, value] : request.macros) words.push_back("-D" + name + "=" + value);
  words.insert(words.end(), more.begin(), more.end());
  const ProcessResult result = run_process(words);
  log += without_folder(result.output, folder.path);
  text = without_folder(read_file(out), folder.path);
  return result.exit_code == 0;
}

bool check_address_spaces(const std::string& program, std::string& log) {
  TemporaryFolder folder;
  const fs::path in = folder.path / "program.clcpp";
  std::ofstream(in) << program;
  const ProcessResult result =
      run_process({compiler(), "-x", "clcpp", "-cl-std=clc++2021", "-fsyntax-only", "--target=x86_64-pc-linux-gnu",
                   "-isystem", header_folder(), "-Xclang", "-cl-single-precision-constant", "-Xclang",
                   "-cl-ext=+cl_khr_fp16", "-Wno-everything", "-Werror=pre-c++17-compat", in.string()});
  log += without_folder(result.output, folder.path);
  return result.exit_code == 0;
}

std::string build_options(const CompileRequest& request, bool instrumented) {
  std::string all;
  for (const std::string& word : options(request, instrumented)) all += word + ' ';
  return all + headers_hash();
}

fs::path build(const std::string& program, const CompileRequest& request, bool instrumented, std::string& log,
               bool& cached) {
  const std::string hash = hash_text(build_options(request, instrumented) + '\n' + program);
  const fs::path found = find_cached(hash);
  cached = !found.empty();
  if (cached) return found;
  TemporaryFolder folder;
  const fs::path in = folder.path / "program.cpp", out = folder.path / "library.so";
  std::ofstream(in) << program;
  std::vector<std::string> words = options(request, instrumented);
  for (const std::string& word :
       {std::string("-I") + header_folder(), std::string("-shared"), std::string("-Wl,-z,now"), std::string("-o"),
        out.string(), in.string(), std::string("-lm")})
    words.push_back(word);
  const ProcessResult result = run_process(words);
  log += without_folder(result.output, folder.path);
  if (result.exit_code != 0) return {};
  return keep_in_cache(out, hash);
}

}  // namespace emulator
