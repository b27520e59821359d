#include <cstring>

#include "harness.h"

using namespace host_test;

HOST_TEST(strings) {
  NS::String* text = string("caf\xc3\xa9 \xf0\x9f\x8d\x8e");  // é, and one beyond the first plane
  CHECK(text->length() == 7);                                 // in units of UTF-16
  CHECK(text->lengthOfBytes(NS::UTF8StringEncoding) == 10);
  CHECK(text->character(3) == 0xe9);
  CHECK(text->isEqualToString(string("caf\xc3\xa9 \xf0\x9f\x8d\x8e")));
  CHECK(!text->isEqualToString(string("cafe")));
  CHECK(std::strcmp(string("a")->stringByAppendingString(string("b"))->utf8String(), "ab") == 0);
  CHECK(string("Apple M5 Max")->rangeOfString(string("M5"), 0).location == 6);
  CHECK(string("Apple M5 Max")->rangeOfString(string("M6"), 0).length == 0);
  NS::String* own = NS::String::alloc()->init("own", NS::UTF8StringEncoding);
  CHECK(std::strcmp(own->utf8String(), "own") == 0);
  own->release();
}

HOST_TEST(malformed_utf8_is_nil) {
  CHECK(NS::String::string("\xff\xfe", NS::UTF8StringEncoding) == nullptr);
  CHECK(NS::String::string("cut \xc3", NS::UTF8StringEncoding) == nullptr);
}

HOST_TEST(arrays_and_dictionaries) {
  const NS::Object* values[] = {NS::Number::number(3), string("4")};
  const NS::Object* keys[] = {string("A"), string("B")};
  NS::Array* array = NS::Array::array(values, 2);
  CHECK(array->count() == 2);
  CHECK(static_cast<NS::Number*>(array->object(0))->intValue() == 3);
  CHECK(array->object(2) == nullptr);
  expect_report("index 2 of 2 objects");
  NS::Dictionary* dictionary = NS::Dictionary::dictionary(values, keys, 2);
  CHECK(dictionary->object(string("B")) == values[1]);
  CHECK(dictionary->object(string("C")) == nullptr);
  CHECK(dictionary->keyEnumerator<NS::String>()->allObjects()->count() == 2);
}

HOST_TEST(errors) {
  const NS::Object* text = string("went wrong");
  CHECK(NS::LocalizedDescriptionKey != nullptr);
  const NS::Object* key = NS::LocalizedDescriptionKey;
  NS::Dictionary* info = NS::Dictionary::dictionary(&text, &key, 1);
  NS::Error* error = NS::Error::error(string("Domain"), 12, info);
  CHECK(error->code() == 12);
  CHECK(std::strcmp(error->domain()->utf8String(), "Domain") == 0);
  CHECK(std::strcmp(error->localizedDescription()->utf8String(), "went wrong") == 0);
}

HOST_TEST(file_urls) {
  NS::URL* url = NS::URL::fileURLWithPath(string("/tmp/a file"));
  CHECK(std::strcmp(url->fileSystemRepresentation(), "/tmp/a file") == 0);
}
