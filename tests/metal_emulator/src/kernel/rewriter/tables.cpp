// The end of a rewritten program: what abi.h calls an EmulatorLibrary.
#include "program.h"

namespace emulator::rewriter {
namespace {

std::string quoted(const std::string& s) { return "\"" + s + "\""; }

/// Name of a function without template arguments and namespaces.
std::string base_name(const std::string& function) {
  const std::string name = trim(function.substr(0, function.find('<')));
  const size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

/// An expression of a template's parameters means nothing outside of it: 0, the device's limit.
std::string max_total_threads(const KernelFunction& kernel) {
  const std::string& text = kernel.max_total_threads;
  const bool number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return text.empty() || (kernel.is_template && !number) ? "0" : text;
}

/// Definitions for one entry; `row` becomes its row of the table.
std::string entry(const std::string& function, const KernelFunction& kernel, const std::string& host_name,
                  const std::string& constants, int id, std::string& row) {
  const std::string n = std::to_string(id);
  std::string binds, names, active;
  for (const KernelParameter& p : kernel.parameters) {
    binds += ", emulator_glue::Bind<" + p.kind + ", " + p.index + ">";
    names += quoted(p.name) + ", ";
    active += p.active.empty() ? "1, " : "(" + p.active + ") ? 1 : 0, ";
  }
  row = "{" + host_name + ", &Entry" + n + "::run, table_" + n + ".parameters, " +
        std::to_string(kernel.parameters.size()) + ", " + max_total_threads(kernel) + ", " + quoted(constants) + "},\n";
  return "using Entry" + n + " = emulator_glue::Entry<&" + function + binds + ">;\n" +
         "static const char* const names_" + n + "[] = {" + names + "nullptr};\n" + "static const int active_" + n +
         "[] = {" + active + "0};\n" + "static const Entry" + n + "::Table table_" + n + " = Entry" + n +
         "::table(names_" + n + ", active_" + n + ");\n";
}

}  // namespace

std::string library_tables(Program& program, const Reached& reached) {
  std::string definitions, rows;
  int count = 0;
  auto add = [&](const std::string& function, const KernelFunction& kernel, const std::string& host_name) {
    std::string row, used;
    for (const FunctionConstantDeclaration& c : program.constants)
      if (reached.at(kernel.name).count(c.name)) used += c.name + " ";
    definitions += entry(function, kernel, host_name, used, count++, row);
    rows += row;
  };
  for (const KernelFunction& kernel : program.kernels)
    if (!kernel.is_template) add(kernel.name, kernel, quoted(kernel.name));
  for (const Instantiation& i : program.instantiations) {
    const KernelFunction* kernel = program.find_kernel(base_name(i.function));
    if (kernel)
      add(i.function, *kernel, i.host_name);
    else
      program.lints.push_back({0, "instantiation of " + i.function + ", which is no kernel", true});
  }
  std::string constants;
  for (const FunctionConstantDeclaration& c : program.constants)
    constants += "{" + quoted(c.name) + ", " + c.index + ", " + quoted(c.type) + ", sizeof(" + c.type + "), " +
                 (c.asked ? "1" : "0") + "},\n";
  return "\n# 1 \"<entries>\"\nnamespace {\n" + definitions + "const EmulatorKernel kernel_table[] = {\n" + rows +
         "{nullptr, nullptr, nullptr, 0, 0, nullptr}};\nconst EmulatorConstant constant_table[] = {\n" + constants +
         "{nullptr, 0, nullptr, 0, 0}};\n}  // namespace\n" +
         "extern \"C\" __attribute__((visibility(\"default\"))) const EmulatorLibrary emulator_library = "
         "{kernel_table, " +
         std::to_string(count) + ", constant_table, " + std::to_string(program.constants.size()) + "};\n";
}

}  // namespace emulator::rewriter
