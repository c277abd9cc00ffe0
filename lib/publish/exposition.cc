// SPDX-License-Identifier: BSD-3-Clause
// The two text formats are nearly the same. In OpenMetrics a counter's family has no
// _total, although its samples do, and a line marks the end of the text. Prometheus asks
// for OpenMetrics first, and follows the Content-Type.
//
// Counters may be published without _total (PublishOptions::names_without_total). Such a
// name is not valid in OpenMetrics, so that format is not offered then.
//
// Numbers are written as integers, with all digits. A double would round from 9 PB on.
#include "lib/publish/exposition.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace netmeter {
namespace internal {
namespace {

// Escapes the value of a label, for both formats. Other bytes need no escape: the value
// is valid UTF-8.
void AppendEscaped(absl::string_view value, std::string* out) {
  size_t done = 0;
  for (size_t i = 0; i < value.size(); ++i) {
    const char c = value[i];
    if (c != '\\' && c != '"' && c != '\n') continue;
    out->append(value.data() + done, i - done);
    out->push_back('\\');
    out->push_back(c == '\n' ? 'n' : c);
    done = i + 1;
  }
  out->append(value.data() + done, value.size() - done);
}

// {a="x",b="y"}, with le="BOUND" last if `bound` is given. Without labels appends
// nothing.
void AppendLabels(const Labels& labels, absl::string_view bound,
                  std::string* out) {
  char separator = '{';
  const auto append = [&](absl::string_view name, absl::string_view value) {
    out->push_back(separator);
    separator = ',';
    absl::StrAppend(out, name, "=\"");
    AppendEscaped(value, out);
    out->push_back('"');
  };
  for (const Label& label : labels) append(label.name, label.value);
  if (!bound.empty()) append("le", bound);
  if (separator == ',') out->push_back('}');
}

// Microseconds as seconds, exactly: "1.2345".
std::string Seconds(uint64_t us) {
  std::string text = absl::StrFormat("%d.%06d", us / 1000000, us % 1000000);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

// Buckets are cumulative: each contains those below it, and the last one contains all.
void AppendHistogram(const char* name, const Metric& metric, std::string* out) {
  uint64_t count = 0;
  for (size_t i = 0; i < metric.buckets.size(); ++i) {
    count += metric.buckets[i];
    absl::StrAppend(out, name, "_bucket");
    AppendLabels(
        metric.labels,
        i + 1 < metric.buckets.size() ? absl::StrCat(BucketBound(i)) : "+Inf",
        out);
    absl::StrAppend(out, " ", count, "\n");
  }
  absl::StrAppend(out, name, "_sum");
  AppendLabels(metric.labels, "", out);
  absl::StrAppend(out, " ", Seconds(metric.value), "\n", name, "_count");
  AppendLabels(metric.labels, "", out);
  absl::StrAppend(out, " ", count, "\n");
}

// The weight of one range of the header, 0 to 1 (RFC 9110, 12.4.2).
double Weight(const std::vector<absl::string_view>& parameters) {
  for (absl::string_view parameter : parameters) {
    parameter = absl::StripAsciiWhitespace(parameter);
    double weight = 0;
    if (!absl::ConsumePrefix(&parameter, "q=") &&
        !absl::ConsumePrefix(&parameter, "Q=")) {
      continue;
    }
    // NaN fails the comparison below.
    if (!absl::SimpleAtod(parameter, &weight)) return 0;
    return weight >= 0 && weight <= 1 ? weight : 0;
  }
  return 1;
}

// Whether the range asks for our version of the format. No version means any.
bool IsOurVersion(const std::vector<absl::string_view>& parameters) {
  for (absl::string_view parameter : parameters) {
    parameter = absl::StripAsciiWhitespace(parameter);
    if (!absl::ConsumePrefix(&parameter, "version=")) continue;
    return parameter == "1.0.0" || parameter == "\"1.0.0\"";
  }
  return true;
}

}  // namespace

const char* ContentType(TextFormat format) {
  return format == TextFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

TextFormat NegotiateFormat(absl::string_view accept) {
  // The greatest weight of each format in any range.
  double open_metrics = 0;
  double text = 0;
  for (const absl::string_view range : absl::StrSplit(accept, ',')) {
    std::vector<absl::string_view> parts = absl::StrSplit(range, ';');
    const std::string type =
        absl::AsciiStrToLower(absl::StripAsciiWhitespace(parts[0]));
    parts.erase(parts.begin());
    if (type == "application/openmetrics-text") {
      if (IsOurVersion(parts)) {
        open_metrics = std::max(open_metrics, Weight(parts));
      }
    } else if (type == "text/plain" || type == "text/*" || type == "*/*") {
      text = std::max(text, Weight(parts));
    }
  }
  return open_metrics > 0 && open_metrics >= text ? TextFormat::kOpenMetrics
                                                  : TextFormat::kPrometheus;
}

bool AcceptsGzip(absl::string_view accept_encoding) {
  double gzip = -1, any = 0, identity = 0;
  for (const absl::string_view range : absl::StrSplit(accept_encoding, ',')) {
    std::vector<absl::string_view> parts = absl::StrSplit(range, ';');
    const std::string coding =
        absl::AsciiStrToLower(absl::StripAsciiWhitespace(parts[0]));
    parts.erase(parts.begin());
    if (coding == "gzip" || coding == "x-gzip") {
      gzip = std::max(gzip, Weight(parts));
    } else if (coding == "*") {
      any = Weight(parts);
    } else if (coding == "identity") {
      identity = Weight(parts);
    }
  }
  if (gzip < 0) gzip = any;  // not listed
  return gzip > 0 && gzip >= identity;
}

// One string for the whole page. With 4096 series it has some 10 MB, so no part is built
// separately and copied.
std::string ToText(const std::vector<Family>& families, TextFormat format) {
  const bool open_metrics = format == TextFormat::kOpenMetrics;
  std::string out;
  for (const Family& family : families) {
    absl::string_view name = family.name;
    const bool counter = family.type == FamilyType::kCounter;
    // In OpenMetrics a counter's samples have the suffix, but its family does not.
    if (open_metrics && counter) name = absl::StripSuffix(name, "_total");
    absl::StrAppend(&out, "# HELP ", name, " ", family.help, "\n# TYPE ", name,
                    counter                                 ? " counter\n"
                    : family.type == FamilyType::kHistogram ? " histogram\n"
                                                            : " gauge\n");
    for (const Metric& metric : family.metrics) {
      if (family.type == FamilyType::kHistogram) {
        AppendHistogram(family.name, metric, &out);
        continue;
      }
      out.append(family.name);
      AppendLabels(metric.labels, "", &out);
      absl::StrAppend(&out, " ", metric.value, "\n");
    }
  }
  if (open_metrics) out.append("# EOF\n");
  return out;
}

}  // namespace internal
}  // namespace netmeter
