// check_msl [-I folder]... [-D name=value]... FILE...
// Lints of the rewriter and the strict pass over address spaces. Messages in the form file:line: ..; exit code 1 where
// a file is refused.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernel/rewriter/rewriter.h"
#include "kernel/toolchain.h"

namespace {

bool check(const std::string& path, const std::vector<std::string>& options) {
  std::ifstream file(path);
  std::ostringstream source;
  source << file.rdbuf();
  if (!file) {
    fprintf(stderr, "%s: cannot be read\n", path.c_str());
    return false;
  }
  emulator::CompileRequest request;
  request.source = source.str();
  request.name = path;
  std::string text, log;
  bool good = emulator::preprocess(request, text, log, options);
  if (good) {
    const emulator::rewriter::Rewritten strict = emulator::rewriter::rewrite_strict(text);
    for (const emulator::rewriter::Lint& lint : strict.lints) {
      log +=
          path + ":" + std::to_string(lint.line) + ": " + (lint.error ? "error: " : "warning: ") + lint.message + "\n";
      good &= !lint.error;
    }
    good = emulator::check_address_spaces(strict.text, log) && good;
  }
  fputs(log.c_str(), stderr);
  printf("%s: %s\n", path.c_str(), good ? "good" : "refused");
  return good;
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<std::string> options, files;
  for (int i = 1; i < count; i++) {
    const std::string word = arguments[i];
    if ((word == "-I" || word == "-D") && i + 1 < count)
      options.push_back(word + arguments[++i]);
    else if (word.rfind("-I", 0) == 0 || word.rfind("-D", 0) == 0)
      options.push_back(word);
    else
      files.push_back(word);
  }
  if (files.empty()) {
    fprintf(stderr, "usage: check_msl [-I folder]... [-D name=value]... FILE...\n");
    return 2;
  }
  bool good = true;
  for (const std::string& file : files) good &= check(file, options);
  return good ? 0 : 1;
}
