#include "source.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>

namespace emulator::rewriter {
namespace {

bool is_word(char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool is_digit(char c) { return isdigit(static_cast<unsigned char>(c)); }

/// Splits text into tokens; one call of a method reads one token.
class Lexer {
 public:
  explicit Lexer(std::string_view s) : s_(s) {}

  std::vector<Token> run() {
    while (i_ < s_.size()) {
      const char c = s_[i_];
      if (c == '\n')
        newline();
      else if (isspace(static_cast<unsigned char>(c)))
        take(TokenKind::space, spaces());
      else if (c == '#' && line_start_)
        directive();
      else
        token(c);
    }
    return std::move(tokens_);
  }

 private:
  char at(size_t i) const { return i < s_.size() ? s_[i] : '\0'; }

  void take(TokenKind kind, size_t end) {
    tokens_.push_back({kind, std::string(s_.substr(i_, end - i_)), line_});
    i_ = end;
  }
  void newline() {
    take(TokenKind::space, i_ + 1);
    line_++;
    line_start_ = true;
  }
  size_t spaces() const {
    size_t e = i_;
    while (at(e) != '\n' && isspace(static_cast<unsigned char>(at(e)))) e++;
    return e;
  }
  /// A line marker of the preprocessor (# 12 "file") sets the line of what follows; pragmas pass.
  void directive() {
    const size_t start = i_, end = std::min(s_.find('\n', i_), s_.size());
    take(TokenKind::directive, end);
    int line = 0;
    char file[2];
    if (sscanf(std::string(s_.substr(start, end - start)).c_str(), "# %d %1s", &line, file) == 2 && at(i_) == '\n') {
      newline();
      line_ = line;
    }
  }
  void token(char c) {
    line_start_ = false;
    if (isalpha(static_cast<unsigned char>(c)) || c == '_')
      take(TokenKind::identifier, word());
    else if (is_digit(c) || (c == '.' && is_digit(at(i_ + 1))))
      take(TokenKind::number, number());
    else if (c == '"' || c == '\'')
      take(TokenKind::string, quoted(c));
    else
      take(TokenKind::punctuation, i_ + punctuation());
  }
  size_t word() const {
    size_t e = i_;
    while (is_word(at(e))) e++;
    return e;
  }
  size_t number() const {
    const bool hex = at(i_) == '0' && (at(i_ + 1) | 32) == 'x';
    size_t e = i_;
    while (is_word(at(e)) || at(e) == '.' || at(e) == '\'' ||
           ((at(e) == '+' || at(e) == '-') && strchr(hex ? "pP" : "eE", at(e - 1))))
      e++;
    return e;
  }
  size_t quoted(char quote) const {
    size_t e = i_ + 1;
    while (e < s_.size() && s_[e] != quote) e += s_[e] == '\\' ? 2 : 1;
    return std::min(e + 1, s_.size());
  }
  size_t punctuation() const {
    for (const char* pair : {"::", "->", "&&"})
      if (s_.substr(i_, 2) == pair) return 2;
    return 1;
  }

  std::string_view s_;
  size_t i_ = 0;
  int line_ = 1;
  bool line_start_ = true;
  std::vector<Token> tokens_;
};

std::vector<int> match_brackets(const std::vector<Token>& tokens) {
  std::vector<int> match(tokens.size(), -1), open;
  for (int i = 0; i < static_cast<int>(tokens.size()); i++) {
    if (tokens[i].kind != TokenKind::punctuation) continue;
    const char c = tokens[i].text[0];
    if (strchr("([{", c)) open.push_back(i);
    if (strchr(")]}", c) && !open.empty()) {
      match[i] = open.back();
      match[open.back()] = i;
      open.pop_back();
    }
  }
  return match;
}

}  // namespace

Source::Source(std::string_view preprocessed) : tokens(Lexer(preprocessed).run()), match_(match_brackets(tokens)) {}

int Source::next(int i) const {
  for (i++; i < size(); i++)
    if (tokens[i].kind != TokenKind::space && tokens[i].kind != TokenKind::directive && !tokens[i].text.empty()) break;
  return i;
}

int Source::previous(int i) const {
  for (i--; i >= 0; i--)
    if (tokens[i].kind != TokenKind::space && tokens[i].kind != TokenKind::directive && !tokens[i].text.empty()) break;
  return i;
}

int Source::after_angles(int i) const {
  for (int depth = 0; i < size(); i++) {
    if (opens(i) && match(i) > 0)
      i = match(i);
    else if (is(i, "<"))
      depth++;
    else if (is(i, ">") && --depth == 0)
      return i + 1;
    else if (is(i, ";"))
      break;
  }
  return i;
}

int Source::find(int i, std::string_view marks) const {
  for (; i < size(); i++) {
    if (tokens[i].text.size() == 1 && tokens[i].kind == TokenKind::punctuation &&
        marks.find(tokens[i].text[0]) != std::string_view::npos)
      return i;
    if (opens(i) && match(i) > 0) i = match(i);
  }
  return size();
}

std::string Source::text(int begin, int end) const {
  std::string out;
  for (int i = begin; i < end; i++)
    if (tokens[i].kind != TokenKind::directive) out += tokens[i].text;
  return trim(out);
}

void Source::erase(int begin, int end) {
  for (int i = begin; i < end; i++)
    if (tokens[i].kind != TokenKind::space && tokens[i].kind != TokenKind::directive) tokens[i].text.clear();
}

void Source::replace(int begin, int end, const std::string& replacement) {
  erase(begin, end);
  tokens[begin].text = replacement;
}

std::vector<std::pair<int, int>> Source::split(int begin, int end) const {
  std::vector<std::pair<int, int>> parts;
  int start = begin, angles = 0;
  for (int i = begin; i < end; i++) {
    if (opens(i) && match(i) > 0)
      i = match(i);
    else if (is(i, "<"))
      angles++;
    else if (is(i, ">"))
      angles--;
    else if (is(i, ",") && angles == 0) {
      parts.push_back({start, i});
      start = i + 1;
    }
  }
  if (!text(start, end).empty()) parts.push_back({start, end});
  return parts;
}

std::string Source::whole() const {
  std::string out;
  for (const Token& t : tokens) out += t.text;
  return out;
}

std::string trim(const std::string& s) {
  const size_t begin = s.find_first_not_of(" \t\n"), end = s.find_last_not_of(" \t\n");
  return begin == std::string::npos ? "" : s.substr(begin, end - begin + 1);
}

}  // namespace emulator::rewriter
