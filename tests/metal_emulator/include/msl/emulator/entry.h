// From the runtime's EmulatorThread to a kernel's parameters. The rewriter writes, for each kernel,
//   using Entry7 = emulator_glue::Entry<&rms_norm<float>, emulator_glue::Bind<kind_buffer, 0>, ..>;
// and the types of the parameters come out of the function's own type.
#pragma once
namespace emulator_glue {

/// An attribute's three numbers as the parameter's type: a scalar or a vector of two or three.
template <class P>
struct FromNumbers {
  static EMULATOR_INLINE P make(const unsigned* n) { return static_cast<P>(n[0]); }
};
template <class T>
struct FromNumbers<metal::vec<T, 2>> {
  static EMULATOR_INLINE metal::vec<T, 2> make(const unsigned* n) {
    return metal::vec<T, 2>(static_cast<T>(n[0]), static_cast<T>(n[1]));
  }
};
template <class T>
struct FromNumbers<metal::vec<T, 3>> {
  static EMULATOR_INLINE metal::vec<T, 3> make(const unsigned* n) {
    return metal::vec<T, 3>(static_cast<T>(n[0]), static_cast<T>(n[1]), static_cast<T>(n[2]));
  }
};

/// A pointer or reference parameter from a binding's address.
template <class P>
struct Pointee {
  static EMULATOR_INLINE P make(void* p) { return P(p); }
  static constexpr unsigned size = 0, alignment = 1;
  static constexpr int is_const = 0, is_reference = 0;
};
template <class T>
struct Pointee<T*> {
  static EMULATOR_INLINE T* make(void* p) { return static_cast<T*>(p); }
  static constexpr unsigned size = sizeof(T), alignment = alignof(T);
  static constexpr int is_const = __is_const(T), is_reference = 0;
};
template <>
struct Pointee<void*> {
  static EMULATOR_INLINE void* make(void* p) { return p; }
  static constexpr unsigned size = 1, alignment = 1;
  static constexpr int is_const = 0, is_reference = 0;
};
template <class T>
struct Pointee<T&> {
  static EMULATOR_INLINE T& make(void* p) { return *static_cast<T*>(p); }
  static constexpr unsigned size = sizeof(T), alignment = alignof(T);
  static constexpr int is_const = __is_const(T), is_reference = 1;
};

template <int Kind, int Index = 0>
struct Bind {
  static_assert(Kind < kind_unknown, "a kernel parameter has no attribute that the emulator knows");

  template <class P>
  static EMULATOR_INLINE P get(const EmulatorThread* t) {
    const EmulatorGroup* g = t->group;
    using Q = __remove_cv(P);
    if constexpr (Kind == kind_buffer)
      return Pointee<P>::make(g->buffers[Index]);
    else if constexpr (Kind == kind_threadgroup_buffer)
      return Pointee<P>::make(g->threadgroup_buffers[Index]);
    else if constexpr (Kind == kind_thread_position_in_grid)
      return FromNumbers<Q>::make(t->position_in_grid);
    else if constexpr (Kind == kind_thread_position_in_threadgroup)
      return FromNumbers<Q>::make(t->position_in_threadgroup);
    else if constexpr (Kind == kind_threadgroup_position_in_grid)
      return FromNumbers<Q>::make(g->position_in_grid);
    else if constexpr (Kind == kind_threads_per_threadgroup)
      return FromNumbers<Q>::make(g->threads_per_threadgroup);
    else if constexpr (Kind == kind_dispatch_threads_per_threadgroup)
      return FromNumbers<Q>::make(g->dispatch_threads_per_threadgroup);
    else if constexpr (Kind == kind_threadgroups_per_grid)
      return FromNumbers<Q>::make(g->threadgroups_per_grid);
    else if constexpr (Kind == kind_threads_per_grid)
      return FromNumbers<Q>::make(g->threads_per_grid);
    else
      return static_cast<Q>(number(t, g));
  }
  static EMULATOR_INLINE unsigned number(const EmulatorThread* t, const EmulatorGroup* g) {
    const unsigned* d = g->dispatch_threads_per_threadgroup;
    if constexpr (Kind == kind_thread_index_in_threadgroup)
      return t->index;
    else if constexpr (Kind == kind_thread_index_in_simdgroup)
      return t->lane;
    else if constexpr (Kind == kind_simdgroup_index_in_threadgroup)
      return t->simdgroup;
    else if constexpr (Kind == kind_simdgroups_per_threadgroup)
      return g->simdgroups;
    else if constexpr (Kind == kind_dispatch_simdgroups_per_threadgroup)
      return (d[0] * d[1] * d[2] + 31) / 32;
    else if constexpr (Kind == kind_threads_per_simdgroup)
      return 32;
    else if constexpr (Kind == kind_thread_index_in_quadgroup)
      return t->index % 4;
    else if constexpr (Kind == kind_quadgroup_index_in_threadgroup)
      return t->index / 4;
    else
      return (g->threads + 3) / 4;
  }
  template <class P>
  static constexpr EmulatorParameter describe(const char* name, int active) {
    using D = Pointee<P>;
    return {name, Kind, Index, D::is_const, D::is_reference, D::size, D::alignment, active};
  }
};

template <auto Function, class... Binds>
struct Entry;
template <class... P, void (*Function)(P...), class... Binds>
struct Entry<Function, Binds...> {
  static_assert(sizeof...(P) == sizeof...(Binds));
  EMULATOR_UNSEEN static void run(const EmulatorThread* t) { Function(Binds::template get<P>(t)...); }

  struct Table {
    EmulatorParameter parameters[sizeof...(P) + 1];
  };
  static Table table(const char* const* names, const int* active) {
    Table t{};
    int i = 0;
    ((t.parameters[i] = Binds::template describe<P>(names[i], active[i]), i++), ...);
    return t;
  }
};

/// A threadgroup variable of a kernel. `Declaration` is a lambda of its own for each declaration and instantiation.
template <class T, class Declaration>
EMULATOR_INLINE T& threadgroup_variable(Declaration, const char* name) {
  static const char declaration = 0;
  constexpr unsigned long alignment = alignof(T) > 16 ? alignof(T) : 16;
  return *static_cast<T*>(emulator_threadgroup_variable(&declaration, sizeof(T), alignment, name));
}

template <class T>
inline T constant_value(unsigned index) {
  T value = T();
  emulator_constant_value(index, &value, sizeof(T));
  return value;
}
}  // namespace emulator_glue
