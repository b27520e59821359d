// Checks one instruction set's linears against the scalar ones: every combination of bits, group, dtype, mode and
// rows, odd sizes, then the engine's epilogues. One line per group of cases; exit 1 when a case fails.
//
//   linear_check NAME      NAME: scalar, avx2, avx512, neon
//
// Errors are normalised: |y - reference| / (|x| |w|), norms over the inputs of one output; an affine weight counts as
// |code * scale| + |bias|, the terms that are rounded. Every input ends at a page that cannot be read, and outputs have
// borders that must stay as they are.

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cpu/linear_codes.h"
#include "cpu/linear_kernels.h"

using namespace saragossa;
using namespace saragossa::cpu;

namespace {

// The integer sums are exact in every instruction set; what differs is the order of at most some hundred roundings.
constexpr double kTolerance = 1e-6;
constexpr float kBorder = 12345.0f;
constexpr int64_t kSide = 3;  // floats of a border

std::mt19937 rng(1);

int passed = 0;
int failed = 0;

/// Bytes that end at a page without access.
class Guarded {
 public:
  explicit Guarded(int64_t bytes) {
    const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
    const int64_t body = (bytes + page - 1) / page * page;
    size_ = static_cast<size_t>(body + page);
    void* p = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(static_cast<uint8_t*>(p) + body, static_cast<size_t>(page), PROT_NONE) != 0) {
      std::perror("mmap");
      std::exit(1);
    }
    base_ = static_cast<uint8_t*>(p);
    begin_ = base_ + (body - bytes);
  }
  ~Guarded() { munmap(base_, size_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  uint8_t* get() const { return begin_; }
  float* floats() const { return reinterpret_cast<float*>(begin_); }

 private:
  uint8_t* base_ = nullptr;
  uint8_t* begin_ = nullptr;
  size_t size_ = 0;
};

void store_float(uint8_t* to, DType dtype, int64_t i, float v) {
  if (dtype == DType::f32) {
    std::memcpy(to + 4 * i, &v, 4);
    return;
  }
  uint16_t half;
  if (dtype == DType::bf16) {
    half = f32_to_bf16(v);
  } else {  // truncated; the values here are normal in f16
    const uint32_t u = std::bit_cast<uint32_t>(v);
    const uint32_t exponent = (u >> 23) & 255u;
    half = exponent < 113u
               ? uint16_t{0}
               : static_cast<uint16_t>(((u >> 16) & 0x8000u) | ((exponent - 112u) << 10) | ((u >> 13) & 0x3ffu));
  }
  std::memcpy(to + 2 * i, &half, 2);
}

enum class Data { random, extreme };

/// A weight of random codes, or of the largest ones (sums that could saturate).
class TestMatrix {
 public:
  /// code: as the kernels name it, bits or kE2M1, kE4M3.
  TestMatrix(int code, int group, DType dtype, int64_t out, int64_t in, Data data)
      : TestMatrix(code % 16, code >= 16, group, dtype, out, in, data) {}
  TestMatrix(int bits, bool mx, int group, DType dtype, int64_t out, int64_t in, Data data)
      : codes_(bits ? out * in * bits / 8 : out * in * size_of(dtype)),
        scales_(bits ? out * in / group * size_of(dtype) : 1),
        biases_(bits ? out * in / group * size_of(dtype) : 1) {
    w.out = out;
    w.in = in;
    w.bits = bits;
    w.group = group;
    w.dtype = dtype;
    w.data = codes_.get();
    std::normal_distribution<float> normal;
    if (bits == 0) {
      for (int64_t i = 0; i < out * in; ++i) store_float(codes_.get(), dtype, i, normal(rng));
      return;
    }
    w.scales = scales_.get();
    w.biases = biases_.get();
    for (int64_t i = 0; i < out * in * bits / 8; ++i)
      codes_.get()[i] = data == Data::extreme ? uint8_t{255} : static_cast<uint8_t>(rng());
    if (mx) {
      w.biases = w.scales;
      for (int64_t i = 0; i < out * in / group; ++i) scales_.get()[i] = static_cast<uint8_t>(118 + rng() % 6);
      for (int64_t i = 0; bits == 8 && i < out * in; ++i)  // no NaN
        if ((codes_.get()[i] & 127) == 127) codes_.get()[i] ^= 1;
      return;
    }
    std::uniform_real_distribution<float> size(0.5f, 2.0f);
    for (int64_t i = 0; i < out * in / group; ++i) {
      const float scale = size(rng) * (rng() % 4 ? 1.0f : -1.0f) * 0.02f;
      store_float(scales_.get(), dtype, i, scale);
      store_float(biases_.get(), dtype, i, -scale * static_cast<float>(1 << (bits - 1)) * size(rng));
    }
  }
  Matrix w;
  double norm(int64_t o) const {
    double sum = 0.0;
    for (int64_t k = 0; k < w.in; ++k) {
      double size = std::abs(static_cast<double>(weight_at(w, o, k)));
      if (w.bits && w.dtype != DType::u8) {
        const double bias = std::abs(static_cast<double>(bias_at(w, o, k / w.group)));
        size = std::abs(static_cast<double>(scale_at(w, o, k / w.group)) * code_at(codes_of(w, o), w.bits, k)) + bias;
      }
      sum += size * size;
    }
    return std::sqrt(sum);
  }

 private:
  Guarded codes_, scales_, biases_;
};

void fill_input(float* x, int64_t rows, int64_t in, Data data) {
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < rows * in; ++i) x[i] = data == Data::extreme ? 3.0f : normal(rng) * (i % 97 ? 1.0f : 20.0f);
}

double norm_of(const float* x, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return std::sqrt(sum);
}

/// 64-byte aligned bytes, filled with something that is a NaN as float.
class Dirty {
 public:
  explicit Dirty(int64_t bytes)
      : p_(static_cast<uint8_t*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 128) / 64 * 64)))) {
    std::memset(p_, 0xff, static_cast<size_t>(bytes));
  }
  ~Dirty() { std::free(p_); }
  Dirty(const Dirty&) = delete;
  Dirty& operator=(const Dirty&) = delete;
  uint8_t* get() const { return p_; }

 private:
  uint8_t* p_;
};

/// y [rows, out + 2 kSide], borders kept, from an instruction set's table; tiles of `chunk` outputs.
std::vector<float> run_table(const LinearKernels& table, const Matrix& w, Activations mode, const float* x,
                             int64_t rows, int64_t chunk) {
  const int64_t stride = w.out + 2 * kSide;
  std::vector<float> y(static_cast<size_t>(rows * stride), kBorder);
  const PackFormat format{mode, w.bits, w.group, w.in, rows > kMatvecRows};
  const bool packs = w.bits != 0 && mode != Activations::f32 && code_of(w) != kE4M3;
  const Dirty packed(packs ? table.packed_bytes(format, rows) : 0);
  if (packs) {
    const int64_t step = (8 + table.pack_rows - 1) / table.pack_rows * table.pack_rows;
    for (int64_t r = 0; r < rows; r += step) table.pack(format, x, rows, r, std::min(rows, r + step), packed.get());
  }
  const Dirty scratch(packs && format.matmul ? table.matmul_scratch(format) : 0);
  if (packs && format.matmul) chunk = (chunk + table.matmul_outs - 1) / table.matmul_outs * table.matmul_outs;
  for (int64_t o = 0; o < w.out; o += chunk) {
    OutTile tile{o, std::min(w.out, o + chunk), y.data() + kSide + o, stride};
    tile.upcoming = {o / chunk % 2 == 1, w.out, {w.data, w.scales, w.biases}};  // hints change nothing
    if (!packs) {
      for (int64_t r = 0; r < rows; r += kMatvecRows)
        table.dot_f32(w, x + r * w.in, std::min(kMatvecRows, rows - r),
                      {tile.begin, tile.end, tile.y + r * stride, stride});
    } else if (format.matmul) {
      table.matmul_int(w, format, packed.get(), rows, tile, scratch.get());
    } else {
      table.matvec_int(w, format, packed.get(), rows, tile);
    }
  }
  return y;
}

const LinearKernels* table_of(const std::string& name, Isa& isa) {
  isa = Isa::scalar;
  if (name == "scalar") return &scalar::linear_kernels();
#if defined(__x86_64__)
  isa = name == "avx2" ? Isa::avx2 : Isa::avx512;
  if (name == "avx2") return &avx2::linear_kernels();
  if (name == "avx512") return &avx512::linear_kernels();
#elif defined(__aarch64__)
  isa = Isa::neon;
  if (name == "neon") return &neon::linear_kernels();
#endif
  return nullptr;
}

const char* name_of_mode(Activations mode) {
  return mode == Activations::f32 ? "f32" : mode == Activations::int15 ? "int15" : "int8";
}

/// What the cases of one printed line came to.
struct Line {
  int cases = 0;
  int bad = 0;
  double worst = 0.0;
  std::string first;  // the first failure
  void fail(const std::string& what) {
    if (bad++ == 0) first = what;
  }
  void print(const std::string& title) const {
    std::printf("%-4s %-28s %4d cases, worst error %.1e%s%s\n", bad ? "FAIL" : "ok", title.c_str(), cases, worst,
                bad ? "; first: " : "", first.c_str());
    std::fflush(stdout);
    passed += cases - bad;
    failed += bad;
  }
};

/// Rows that hold an infinity or a NaN give NaN and leave their neighbours alone.
bool check_table(const LinearKernels& table, const TestMatrix& m, Activations mode, int64_t rows, Data data,
                 double& worst, std::string& why) {
  const Matrix& w = m.w;
  const Guarded input(rows * w.in * 4);
  float* x = input.floats();
  fill_input(x, rows, w.in, data);
  if (rows == 3) std::memset(x + w.in, 0, static_cast<size_t>(w.in) * 4);  // a row of zeros
  const std::vector<float> want = run_table(scalar::linear_kernels(), w, mode, x, rows, w.out);
  const std::vector<float> got = run_table(table, w, mode, x, rows, 24);
  const int64_t stride = w.out + 2 * kSide;
  bool good = true;
  for (int64_t r = 0; r < rows; ++r) {
    const double x_norm = norm_of(x + r * w.in, w.in);
    for (int64_t i = 0; i < stride; ++i) {
      const auto at = static_cast<size_t>(r * stride + i);
      if (i < kSide || i >= stride - kSide) {
        if (got[at] != kBorder) why = "writes outside of its tile", good = false;
        continue;
      }
      const double scale = x_norm * m.norm(i - kSide) + 1e-30;
      const double error = std::abs(static_cast<double>(got[at]) - static_cast<double>(want[at])) / scale;
      worst = std::max(worst, error);
      if (!(error <= kTolerance)) why = "error " + std::to_string(error), good = false;
    }
  }
  // The matvec form: a row alone has the bits that it has among others; so has a row in other chunks.
  const bool alone = rows <= kMatvecRows || w.bits == 0 || mode == Activations::f32 || code_of(w) == kE4M3;
  if (alone && data == Data::random) {
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<float> one = run_table(table, w, mode, x + r * w.in, 1, w.out);
      if (std::memcmp(one.data(), got.data() + r * stride, static_cast<size_t>(stride) * 4) != 0)
        why = "row " + std::to_string(r) + " depends on the number of rows or on the chunk", good = false;
    }
  }
  // The last row gets an infinity: it becomes NaN or infinite, the others keep their bits.
  x[rows * w.in - 1] = INFINITY;
  const std::vector<float> broken = run_table(table, w, mode, x, rows, 24);
  for (int64_t i = 0; i < w.out; ++i)
    if (std::isfinite(broken[static_cast<size_t>((rows - 1) * stride + kSide + i)]))
      why = "an infinity is lost", good = false;
  if (std::memcmp(broken.data(), got.data(), static_cast<size_t>((rows - 1) * stride) * 4) != 0)
    why = "an infinity spreads to other rows", good = false;
  return good;
}

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16, DType::u8};
constexpr int kCodes[] = {2, 3, 4, 5, 6, 8, kE2M1, kE4M3};

std::string name_of_code(int code) {
  return code == 0 ? "dense" : code < 16 ? std::to_string(code) + " bits" : "mxfp" + std::to_string(code % 16);
}
constexpr int64_t kRows[] = {1, 2, 3, 4, 5, 8, 9, 14, 20, 33};
constexpr int64_t kOuts[] = {7, 64, 65};

void check_matrices(const LinearKernels& table, int code, int group, Activations mode) {
  Line line;
  std::vector<int64_t> ins{1, 33, 64, 576, 1000};
  if (code) ins = {group, 7 * group, 8 * group, 9 * group, 18 * group, 69 * group};
  for (const DType dtype : kDTypes) {
    if ((dtype == DType::u8) != (code >= 16)) continue;
    for (const int64_t in : ins) {
      for (const int64_t out : kOuts) {
        if (out * in > 65 * 18 * 64) continue;  // long inputs with few outputs only
        for (const Data data : {Data::random, Data::extreme}) {
          const TestMatrix m(code, group, dtype, out, in, data);
          for (const int64_t rows : kRows) {
            ++line.cases;
            std::string why;
            if (!check_table(table, m, mode, rows, data, line.worst, why))
              line.fail(std::string(name_of(dtype)) + " [" + std::to_string(out) + ", " + std::to_string(in) + "], " +
                        std::to_string(rows) + " rows: " + why);
          }
        }
      }
    }
  }
  line.print(name_of_code(code) + (code ? ", group " + std::to_string(group) : "") + ", " + name_of_mode(mode));
}

/// The engine with this instruction set against the engine with the scalar one: groups of outputs, epilogues, biases.
void check_engine(const LinearKernels& table, Isa isa, int bits, Activations mode) {
  Line line;
  ThreadPool pool(2, 0);
  LinearEngine engine(isa, mode, pool);
  LinearEngine reference(Isa::scalar, mode, pool);
  const int64_t in = 576;
  const TestMatrix a(bits, 64, DType::bf16, 65, in, Data::random);
  const TestMatrix b(bits ? bits : 4, 32, DType::f16, 65, in, Data::random);
  const TestMatrix c(0, 0, DType::bf16, 7, in, Data::random);
  std::vector<float> bias(65);
  std::normal_distribution<float> normal;
  for (float& v : bias) v = normal(rng);
  for (const LinearEpilogue epilogue : {LinearEpilogue::store, LinearEpilogue::add, LinearEpilogue::gated}) {
    for (const Activation act : {Activation::silu, Activation::gelu_tanh}) {
      for (const bool with_bias : {false, true}) {
        for (const int64_t rows : kRows) {
          if (epilogue != LinearEpilogue::gated && act != Activation::silu) continue;
          ++line.cases;
          const Guarded x(rows * in * 4);
          fill_input(x.floats(), rows, in, Data::random);
          LinearJob job;
          job.x = x.floats();
          job.rows = rows;
          job.epilogue = epilogue;
          job.act = act;
          job.n_outs = epilogue == LinearEpilogue::store ? 3 : epilogue == LinearEpilogue::gated ? 2 : 1;
          std::vector<float> y[2][3];
          for (int side = 0; side < 2; ++side) {
            const TestMatrix* weights[3] = {&a, &b, &c};
            for (int i = 0; i < job.n_outs; ++i) {
              y[side][i].assign(static_cast<size_t>(rows * weights[i]->w.out), 0.5f);
              job.outs[i] = {weights[i]->w, y[side][i].data(), with_bias ? bias.data() : nullptr};
            }
            (side ? reference : engine).run(job);
          }
          const int written = epilogue == LinearEpilogue::gated ? 1 : job.n_outs;
          for (int i = 0; i < written; ++i) {
            double most = 0.0;
            double error = 0.0;
            for (size_t j = 0; j < y[0][i].size(); ++j) {
              most = std::max(most, std::abs(static_cast<double>(y[1][i][j])));
              const double d = std::abs(static_cast<double>(y[0][i][j]) - static_cast<double>(y[1][i][j]));
              error = d <= error ? error : d;
            }
            line.worst = std::max(line.worst, error / most);
            if (!(error / most <= 4 * kTolerance))
              line.fail("rows " + std::to_string(rows) + ", output " + std::to_string(i));
          }
          // That the engine has this table and no other: the same bits.
          if (epilogue == LinearEpilogue::store && !with_bias) {
            const std::vector<float> direct = run_table(table, a.w, mode, x.floats(), rows, 65);
            for (int64_t r = 0; r < rows; ++r)
              if (std::memcmp(direct.data() + r * (65 + 2 * kSide) + kSide, y[0][0].data() + r * 65, 65 * 4) != 0) {
                line.fail("the engine does not give the bits of the table");
                break;
              }
          }
        }
      }
    }
  }
  line.print("engine, " + (bits ? std::to_string(bits) + " bits" : std::string("dense")) + ", " + name_of_mode(mode));
}

}  // namespace

int main(int argc, char** argv) {
  Isa isa;
  const LinearKernels* table = argc == 2 ? table_of(argv[1], isa) : nullptr;
  if (!table) {
    std::fprintf(stderr, "usage: linear_check NAME (scalar, avx2, avx512; on aarch64 scalar, neon)\n");
    return 2;
  }
  check_matrices(*table, 0, 0, Activations::f32);
  for (const int code : kCodes)
    for (const int group : {32, 64, 128})
      for (const Activations mode : {Activations::f32, Activations::int15, Activations::int8})
        if (code < 16 || group == 32) check_matrices(*table, code, group, mode);
  for (const int bits : {0, 2, 3, 4, 5, 6, 8})
    for (const Activations mode : {Activations::f32, Activations::int15, Activations::int8})
      check_engine(*table, isa, bits, mode);
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}
