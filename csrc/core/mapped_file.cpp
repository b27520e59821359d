#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/errors.h"

namespace saragossa {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(ErrorKind::weights, path, ": ", std::strerror(errno));
  struct stat info{};
  if (::fstat(fd, &info) != 0 || info.st_size <= 0) {
    ::close(fd);
    fail(ErrorKind::weights, path, ": empty or unreadable");
  }
  size_ = info.st_size;
  void* at = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  ::close(fd);
  if (at == MAP_FAILED) fail(ErrorKind::weights, path, ": cannot be mapped: ", std::strerror(error));
  data_ = static_cast<const uint8_t*>(at);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
}

void MappedFile::will_need() const {
  ::madvise(const_cast<uint8_t*>(data_), static_cast<size_t>(size_), MADV_WILLNEED);
}

}  // namespace saragossa
