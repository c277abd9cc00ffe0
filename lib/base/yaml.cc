// SPDX-License-Identifier: BSD-3-Clause
#include "lib/base/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

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

// `line` counts from 0, as yaml-cpp does.
bool LineIsIndentedByTab(absl::string_view yaml, int line) {
  const std::vector<absl::string_view> lines = absl::StrSplit(yaml, '\n');
  if (line < 0 || static_cast<size_t>(line) >= lines.size()) return false;
  const absl::string_view text = lines[static_cast<size_t>(line)];
  return absl::StrContains(text.substr(0, text.find_first_not_of(" \t")), '\t');
}

}  // namespace

std::string WhyNoYaml(absl::string_view yaml, const YAML::Exception& error) {
  // yaml-cpp's own message is about blocks and maps.
  return LineIsIndentedByTab(yaml, error.mark.line)
             ? "a tab indents this line: YAML takes blanks only"
         : absl::StrContains(yaml, '\0') ? "the file has a NUL: expected text"
                                         : error.msg;
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
