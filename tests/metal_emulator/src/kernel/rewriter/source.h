#pragma once
// A program as a list of tokens with matched brackets. The rewriter changes the text of tokens in place, so lines stay
// where they are and clang's messages are right.

#include <string>
#include <string_view>
#include <vector>

namespace emulator::rewriter {

enum class TokenKind { identifier, number, string, punctuation, space, directive };

struct Token {
  TokenKind kind;
  std::string text;  // empty once erased
  int line;          // in the file that the line markers name
};

class Source {
 public:
  explicit Source(std::string_view preprocessed);

  std::vector<Token> tokens;

  int size() const { return static_cast<int>(tokens.size()); }
  bool is(int i, std::string_view text) const { return i >= 0 && i < size() && tokens[i].text == text; }
  bool is_identifier(int i) const { return i >= 0 && i < size() && tokens[i].kind == TokenKind::identifier; }
  /// The next and previous token that is neither space nor erased.
  int next(int i) const;
  int previous(int i) const;
  /// The other bracket of a pair ( ), [ ], { }; -1 where there is none.
  int match(int i) const { return i >= 0 && i < size() ? match_[i] : -1; }
  bool opens(int i) const { return is(i, "(") || is(i, "[") || is(i, "{"); }
  /// `[[`
  bool is_attribute(int i) const {
    return is(i, "[") && is(i + 1, "[") && match_[i] > 0 && match_[i + 1] == match_[i] - 1;
  }
  /// From `<`, behind the matching `>`.
  int after_angles(int i) const;
  /// From i on, the first of these marks outside of brackets; size() where there is none.
  int find(int i, std::string_view marks) const;

  /// Text of [begin, end) without directives, trimmed.
  std::string text(int begin, int end) const;
  /// Empties [begin, end); newlines stay.
  void erase(int begin, int end);
  /// erase(), with `replacement` in its place.
  void replace(int begin, int end, const std::string& replacement);
  /// [begin, end) split at top-level commas.
  std::vector<std::pair<int, int>> split(int begin, int end) const;

  std::string whole() const;

 private:
  std::vector<int> match_;
};

std::string trim(const std::string& s);

}  // namespace emulator::rewriter
