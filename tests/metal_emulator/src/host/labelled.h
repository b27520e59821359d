#pragma once
// What has a label property.

#include "foundation.h"

namespace emulator::host {

class Labelled : public Object {
 public:
  NSString* label() const { return make_string(label_); }
  void setLabel(NSString* label) {
    label_ = label ? label->text : "";
    label_changed();
  }
  const std::string& label_text() const { return label_; }

 protected:
  virtual void label_changed() {}

 private:
  std::string label_;
};

}  // namespace emulator::host
