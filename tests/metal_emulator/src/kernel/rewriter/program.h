#pragma once
// What the passes of the rewriter find out and hand on.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "rewriter.h"
#include "source.h"

namespace emulator::rewriter {

/// A kernel's parameter; `kind` and `index` are C++ expressions for entry.h.
struct KernelParameter {
  std::string name, kind = "kind_unknown", index = "0";
  std::string active;  // name of its function constant
};

struct KernelFunction {
  std::string name;
  std::vector<KernelParameter> parameters;
  bool is_template = false;
  std::string max_total_threads;  // a number or an expression, may be empty
  int body = -1;                  // token of `{`
};

/// template [[host_name("x")]] [[kernel]] decltype(f<float>) f<float>;
struct Instantiation {
  std::string host_name;  // with quotes
  std::string function;   // f<float>
};

struct FunctionConstantDeclaration {
  std::string name, type, index;
  bool asked = false;
};

struct Program {
  Source source;
  bool strict;  // for the address-space check
  std::vector<Lint> lints;
  std::vector<KernelFunction> kernels;
  std::vector<Instantiation> instantiations;
  std::vector<FunctionConstantDeclaration> constants;

  void lint(int token, const std::string& message, bool error = true) {
    lints.push_back({token < source.size() ? source.tokens[token].line : 0, message, error});
  }
  const KernelFunction* find_kernel(const std::string& name) const;
};

// The passes, in the order in which they run.
void check_words(Program& program);           // lints.cpp
void find_instantiations(Program& program);   // kernels.cpp
void find_kernels(Program& program);          // kernels.cpp
void remove_attributes(Program& program);     // kernels.cpp
void check_address_spaces(Program& program);  // lints.cpp
void check_language(Program& program, int language);
void rewrite_variables(Program& program);  // variables.cpp
void rewrite_constants(Program& program);  // variables.cpp

/// All names that each kernel reaches, through the functions and constants it names; by kernel name. To be called
/// while the source still has its own names.
using Reached = std::map<std::string, std::set<std::string>>;
Reached names_of_kernels(const Program& program);  // uses.cpp

/// The tables at the end of a library: entries, parameters, constants.
std::string library_tables(Program& program, const Reached& reached);  // tables.cpp

}  // namespace emulator::rewriter
