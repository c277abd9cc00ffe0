// SPDX-License-Identifier: BSD-3-Clause
#include "lib/loader/config_text.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/core/text.h"

namespace netmeter {
namespace internal {
namespace {

// Sees where documents begin, and nothing else.
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

// `line` counts from 0, as yaml-cpp does.
bool LineIsIndentedByTab(absl::string_view yaml, int line) {
  const std::vector<absl::string_view> lines = absl::StrSplit(yaml, '\n');
  if (line < 0 || static_cast<size_t>(line) >= lines.size()) return false;
  const absl::string_view text = lines[static_cast<size_t>(line)];
  return absl::StrContains(text.substr(0, text.find_first_not_of(" \t")), '\t');
}

}  // namespace

std::string WhyNoYaml(absl::string_view yaml, const YAML::Exception& error) {
  // Its own words are of blocks and maps.
  return LineIsIndentedByTab(yaml, error.mark.line)
             ? "a tab indents this line: YAML takes blanks only"
         : absl::StrContains(yaml, '\0') ? "the file has a NUL: expected text"
                                         : error.msg;
}

// Not YAML::LoadAll(), which never ends where the parser does not get past what
// follows a document.
int LineOfSecondDocument(const std::string& yaml) {
  std::istringstream stream(yaml);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  if (!parser.HandleNextDocument(starts)) return 0;
  return parser.HandleNextDocument(starts) ? starts.line() : 0;
}

// A NUL would end the message.
std::string Quote(const std::string& value) {
  return OneLine(value.size() <= 64
                     ? absl::StrCat("'", value, "'")
                     : absl::StrCat("'", value.substr(0, 64), "...'"));
}

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

std::string WhyNoName(const std::string& name, size_t most) {
  if (name.empty() || name.size() > most ||
      name.find('\0') != std::string::npos) {
    return absl::StrCat(Quote(name), ": a name has 1 to ", most,
                        " bytes, no NUL");
  }
  // YAML 1.2, 5.2. What is loaded is kept as YAML, too.
  return ToUtf8(name) == name ? "" : "a name is no UTF-8";
}

// Processes are compared by the base name of what was executed.
std::string WhyNoExecutable(const std::string& name) {
  const std::string no_name = WhyNoName(name);
  if (!no_name.empty()) return no_name;
  if (name.find('/') != std::string::npos) {
    return absl::StrCat(
        Quote(name), ": expected the name of an executable, without its path");
  }
  // No pattern and no blank is ever found, and nobody would know.
  if (name.find_first_of("*?[") != std::string::npos) {
    return absl::StrCat(Quote(name),
                        ": expected the name of an executable, not a pattern "
                        "(what is not listed counts under its own name)");
  }
  if (OneLine(name) != name) {
    return absl::StrCat(Quote(OneLine(name)),
                        ": a name without control characters is expected");
  }
  if (name == "." || name == ".." || absl::ascii_isspace(name.front()) ||
      absl::ascii_isspace(name.back())) {
    return absl::StrCat(Quote(name), ": no executable has this name");
  }
  return "";
}

std::string WhyNoSuffix(const std::string& suffix) {
  // They go into nm_info.suffixes, one a line.
  const std::string no_name = WhyNoName(suffix, NM_SUFFIXES_BYTES - 1);
  if (!no_name.empty()) return no_name;
  if (suffix.find('\n') != std::string::npos) {
    return "expected names without line breaks";
  }
  if (suffix[0] != '.' && suffix[0] != '-') {
    return absl::StrCat(
        Quote(suffix),
        ": expected a suffix that begins with '.' or '-', such as .local");
  }
  return "";
}

}  // namespace internal
}  // namespace netmeter
