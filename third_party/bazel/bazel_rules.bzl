"""Repositories that Debian's Bazel expects and would otherwise download."""

def bazel_rules():
    """Declares rules_cc and rules_java for a Bazel without a version.

    Debian's bazel-bootstrap is a "development version": its bazel_version is
    empty. Its @bazel_tools loads @rules_cc and @rules_java, which it would
    fetch from GitHub, and Debian's bazel-rules-cc (0.0.4) is too new for it.
    Released Bazels bring rules that match them.
    """
    if native.bazel_version:
        return
    for name in ["remote_coverage_tools", "rules_cc", "rules_java"]:
        native.local_repository(
            name = name,
            path = "third_party/bazel_rules/" + name,
        )
