# SPDX-License-Identifier: BSD-3-Clause
# netmeter for Yocto on x86-64 and arm64: installs the static programs of a release,
# because Yocto has no Bazel. Copy this file to recipes-support/netmeter of a layer, and
# the release's SHA256SUMS beside this file: it has the version and the hashes. In
# local.conf, NETMETER_RELEASE is the URL of the release's files:
#
#   NETMETER_RELEASE = "https://packages.example/netmeter"
#   IMAGE_INSTALL:append = " netmeter netmeter-exporter"
#
# Without systemd, see docs/platforms.md.
SUMMARY = "Network bytes of each service, counted by BPF programs"
LICENSE = "BSD-3-Clause"
LIC_FILES_CHKSUM = "file://LICENSE;md5=65a8309d87842ce1a77e8c9a72662b0b"
COMPATIBLE_HOST = "(x86_64|aarch64).*-linux"

PROGRAMS = "netmeter-loader netmeter netmeter-exporter"
SUFFIX = "${PV}-${TARGET_ARCH}-static"
SRC_URI = "${NETMETER_RELEASE}/netmeter-${PV}.tar.gz;name=netmeter-${PV}.tar.gz \
    ${@' '.join('${NETMETER_RELEASE}/%s;name=%s;unpack=0' % (file, file) for file in [p + '-${SUFFIX}' for p in d.getVar('PROGRAMS').split()])}"

python () {
    import os, re
    if not d.getVar("UNPACKDIR"): # before Yocto 5.1
        d.setVar("UNPACKDIR", d.getVar("WORKDIR"))
    sums = os.path.join(os.path.dirname(d.getVar("FILE")), "SHA256SUMS")
    bb.parse.mark_dependency(d, sums)
    if not os.path.exists(sums):
        raise bb.parse.SkipRecipe("no SHA256SUMS of a release beside it")
    for line in open(sums):
        hash, name = line.split()
        version = re.match(r"netmeter-([0-9.]+)\.tar\.gz$", name)
        if version:
            d.setVar("PV", version[1])
        d.setVarFlag("SRC_URI", name + ".sha256sum", hash)
}

inherit systemd useradd
INHIBIT_DEFAULT_DEPS = "1"
INSANE_SKIP:${PN} = "already-stripped"
INSANE_SKIP:${PN}-exporter = "already-stripped"

do_install() {
    install -d ${D}${bindir} ${D}${sbindir} ${D}${sysconfdir} ${D}${systemd_system_unitdir}
    install -m 0755 ${UNPACKDIR}/netmeter-loader-${SUFFIX} ${D}${sbindir}/netmeter-loader
    for program in netmeter netmeter-exporter; do
        install -m 0755 ${UNPACKDIR}/$program-${SUFFIX} ${D}${bindir}/$program
    done
    install -m 0644 ${S}/packaging/netmeter.yml ${D}${sysconfdir}/netmeter.yml
    for unit in netmeter-loader.netmeter.service netmeter.netmeter-record.service netmeter.netmeter-record.timer \
        netmeter.netmeter-record-last.service netmeter-exporter.service; do
        install -m 0644 ${S}/packaging/debian/$unit ${D}${systemd_system_unitdir}/${unit#*.}
    done
    mv ${D}${systemd_system_unitdir}/service ${D}${systemd_system_unitdir}/netmeter-exporter.service
}

PACKAGES =+ "${PN}-exporter"
FILES:${PN}-exporter = "${bindir}/netmeter-exporter ${systemd_system_unitdir}/netmeter-exporter.service"
RDEPENDS:${PN}-exporter = "${PN}"
FILES:${PN} += "${systemd_system_unitdir}"
CONFFILES:${PN} = "${sysconfdir}/netmeter.yml"
USERADD_PACKAGES = "${PN}"
GROUPADD_PARAM:${PN} = "--system netmeter"
SYSTEMD_PACKAGES = "${PN} ${PN}-exporter"
SYSTEMD_SERVICE:${PN} = "netmeter.service netmeter-record.timer"
SYSTEMD_SERVICE:${PN}-exporter = "netmeter-exporter.service"
