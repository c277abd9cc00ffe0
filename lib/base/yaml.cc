// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/text.h"

namespace netmeter {
namespace internal {
namespace {

// Records the lines at which documents begin.
class DocumentStarts : public YAML::EventHandler {
 public:
  int line() const { return line_; }  // of the last one, from 1

  void OnDocumentStart(const YAML::Mark& mark) override {
    line_ = mark.line + 1;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  int line_ = 0;
};

using Lines = std::vector<absl::string_view>;

bool IsIndentedByTab(absl::string_view line) {
  return absl::StrContains(line.substr(0, line.find_first_not_of(" \t")), '\t');
}

// The key of the first column that line `index` belongs to, as "uplinks: ".
std::string KeyOf(const Lines& lines, size_t index) {
  for (size_t i = index + 1; i-- > 0;) {
    const size_t end =
        lines[i].find_first_not_of("abcdefghijklmnopqrstuvwxyz_");
    if (end == 0 || end == absl::string_view::npos || lines[i][end] != ':') {
      continue;
    }
    return absl::StrCat(lines[i].substr(0, end), ": ");
  }
  return "";
}

// A bracket or a quote without its counterpart; '\0': none.
struct Unmatched {
  char character = 0;
  size_t line = 0;  // from 0
};

// The character at i, or 'a' if it is a letter of a plain text, as the '-' of Bob-'s. A
// node may begin after '-', ':' and ',' only if they are not letters. `before`: as in
// FindUnmatched().
char Indicator(absl::string_view yaml, size_t i, char before, bool in_flow) {
  const char c = yaml[i];
  const char next = i + 1 < yaml.size() ? yaml[i + 1] : '\n';
  const bool apart = absl::ascii_isspace(static_cast<unsigned char>(next));
  bool indicates = true;
  if (c == ',') {
    indicates = in_flow;
  } else if (c == ':') {  // also {"a":"b"}
    indicates = apart || (in_flow && absl::StrContains("\"']}", before));
  } else if (c == '-') {  // also ---
    indicates = absl::StrContains("\n:-", before) && (apart || next == '-');
  }
  return indicates ? c : 'a';
}

Unmatched FindUnmatched(absl::string_view yaml) {
  std::vector<Unmatched> open;
  size_t line = 0;
  char before = '\n';  // not a blank; see Indicator()
  for (size_t i = 0; i < yaml.size(); ++i) {
    const char c = yaml[i];
    // Within a plain text, outside of brackets, they are letters.
    const bool begins =
        !open.empty() || absl::StrContains("\n:-,[]{}\"'", before);
    if (c == '#' && (i == 0 || absl::StrContains(" \t\n", yaml[i - 1]))) {
      while (i + 1 < yaml.size() && yaml[i + 1] != '\n') ++i;
      continue;
    }
    if ((c == '"' || c == '\'') && absl::StrContains("\n:-,[{", before)) {
      const Unmatched quote = {c, line};
      for (++i; i < yaml.size(); ++i) {
        if (absl::StartsWith(yaml.substr(i), c == '"' ? "\\" : "''")) {
          ++i;
        } else if (yaml[i] == c) {
          break;
        }
        if (i < yaml.size() && yaml[i] == '\n') ++line;
      }
      if (i >= yaml.size()) return quote;
    } else if (begins && (c == '[' || c == '{')) {
      open.push_back({c, line});
    } else if (begins && (c == ']' || c == '}')) {
      if (open.empty()) return {c, line};
      if (open.back().character != (c == ']' ? '[' : '{')) return open.back();
      open.pop_back();
    }
    if (c == '\n') ++line;
    if (c != ' ' && c != '\t' && (c != '\n' || open.empty())) {
      before = Indicator(yaml, i, before, !open.empty());
    }
  }
  return open.empty() ? Unmatched() : open.back();
}

std::string TextOf(const Unmatched& one) {
  switch (one.character) {
    case '[':
      return "'[' without ']': expected a list, such as [a, b]";
    case '{':
      return "'{' without '}': expected a map, such as {a: b}";
    case ']':
      return "']' without '['";
    case '}':
      return "'}' without '{'";
    default:
      return absl::StrCat("a quote without its end: ",
                          std::string(1, one.character));
  }
}

// The value that begins with a character to which YAML gives a meaning; "" if none does.
absl::string_view SpecialValue(absl::string_view line) {
  char before = ':';  // not a blank
  for (size_t i = 0; i < line.size(); ++i) {
    if (absl::StrContains(" \t", line[i])) continue;
    if (absl::StrContains("*&!|>%@`", line[i]) &&
        absl::StrContains(":-,[{", before)) {
      line.remove_prefix(i);
      return absl::StripSuffix(line.substr(0, line.find_first_of(" ,]}\r")),
                               ":");
    }
    before = line[i];
  }
  return "";
}

}  // namespace

YAML::Node LoadYaml(const std::string& yaml) {
  const YAML::Node root = YAML::Load(yaml);
  const Unmatched unmatched = FindUnmatched(yaml);
  if (unmatched.character == '"' || unmatched.character == '\'') {
    throw YAML::ParserException(YAML::Mark(), YAML::ErrorMsg::EOF_IN_SCALAR);
  }
  return root;
}

YamlFault DescribeFault(absl::string_view yaml, const YAML::Exception& error) {
  const Lines lines =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(yaml), '\n');
  // A text that does not end as it should is at fault in its last line.
  size_t index = error.mark.line < 0 ? 0 : static_cast<size_t>(error.mark.line);
  index = std::min(index, lines.size() - 1);
  YamlFault fault;
  if (IsIndentedByTab(lines[index])) {
    fault.text = "a tab indents this line: YAML takes blanks only";
  } else if (absl::StrContains(yaml, '\0')) {
    fault.text = "the file has a NUL: expected text";
  } else {
    const Unmatched unmatched = FindUnmatched(yaml);
    const absl::string_view value = SpecialValue(lines[index]);
    if (unmatched.character != 0) index = unmatched.line;
    const std::string key = KeyOf(lines, std::min(index, lines.size() - 1));
    if (unmatched.character != 0) {
      fault.text = absl::StrCat(key, TextOf(unmatched));
    } else if (!value.empty()) {
      fault.text = absl::StrCat(key, "expected \"", ToTerminal(value),
                                "\" in quotes, because YAML gives a leading '",
                                value.substr(0, 1), "' a meaning of its own");
    } else {
      fault.text = absl::StrCat(
          key,
          "expected key: value lines, indented as their neighbours, and quotes "
          "around a value with a colon");
    }
  }
  fault.line = static_cast<int>(index) + 1;
  return fault;
}

// YAML::LoadAll() would never end if the parser cannot get past the text that follows a
// document.
int LineOfSecondDocument(const std::string& yaml) {
  std::istringstream stream(yaml);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  if (!parser.HandleNextDocument(starts)) return 0;
  return parser.HandleNextDocument(starts) ? starts.line() : 0;
}

}  // namespace internal
}  // namespace netmeter
