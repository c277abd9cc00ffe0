"""Repositories that Debian's Bazel expects and would otherwise download."""

def _vendored_impl(rctx):
    # Not local_repository, whose path is in the main workspace, which may be another
    # one. This file is the only one in these folders with a label.
    here = rctx.path(Label("//third_party/bazel:bazel_rules.bzl")).dirname
    folder = here.dirname.get_child("bazel_rules").get_child(rctx.name)
    for path in folder.readdir():
        rctx.symlink(path, path.basename)

_vendored = repository_rule(
    implementation = _vendored_impl,
    local = True,
)

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
        _vendored(name = name)
