#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes a configuration of netmeter-loader from what a Magma gateway knows already: its
services, the port of its control proxy and the address of its cloud.

  magma_config.py --output /run/netmeter-magma.yml
  netmeter-loader load --config /run/netmeter-magma.yml

A file of the same name in the overrides replaces whole top-level keys, as Magma reads them.

  services              every service of service_registry.yml, mme and sctpd
  aliases               oai_mme and agw_of are mme, gateway_health is health
  proxy_ports           local_port of control_proxy.yml
  sni_ports             cloud_port, bootstrap_port and fluentd_port, beside the defaults
  destination_suffixes  "-<cloud_address>", before the defaults

Exit status: 0 written; 1 failed, one line on stderr says why; 2 wrong usage."""

import argparse
import os
import sys

import yaml

# The loader's own defaults (struct Config of lib/loader/config.h).
DEFAULTS = {
    "proxy_ports": [8443],
    "sni_ports": [443, 7443, 7444, 9443, 9444],
    "destination_suffixes": [".local"],
}
# The registry has no entry for sctpd, and for parts of the MME only.
SERVICES = ("mme", "sctpd")
# Executables whose name differs from that of their service: oai_mme is the MME, and
# agw_of is the MME that Bazel builds. FeG and CWF call the program of their service
# health gateway_health.
ALIASES = {"oai_mme": "mme", "agw_of": "mme", "gateway_health": "health"}
# No rule for fluentd_port: if it is 443, like all ports in Magma's deployment guide,
# the rule would match the traffic of bootstrapper and streamer.
SNI_PORTS = ("cloud_port", "bootstrap_port", "fluentd_port")


class Wrong(Exception):
    pass


def read(path):
    """The map of a YAML file; None if there is none."""
    if not os.path.lexists(path):
        return None
    if os.path.exists(path) and not os.path.isfile(path):
        raise Wrong(path + ": is no regular file")
    try:
        with open(path, encoding="utf-8") as file:
            found = yaml.safe_load(file)
    except OSError as error:
        raise Wrong("%s: %s" % (path, error.strerror)) from error
    except (yaml.YAMLError, ValueError) as error:
        raise Wrong("%s: %s" % (path, " ".join(str(error).split()))) from error
    if found is not None and not isinstance(found, dict):
        raise Wrong(path + ": expected a map")
    return found or {}


class Merged:
    """A file of Magma's with what overrides it."""

    def __init__(self, name, directory, overrides):
        self.path = os.path.join(directory, name)
        self.values, self.paths, self.found = {}, {}, False
        for path in (self.path, os.path.join(overrides, name)):
            values = read(path)
            self.found |= values is not None
            for key, value in (values or {}).items():
                self.values[key], self.paths[key] = value, path

    def wrong(self, key, why):
        return Wrong("%s: %s: %s" % (self.paths[key], key, why))

    def text(self, key):
        value = self.values.get(key)
        if isinstance(value, (dict, list)):
            raise self.wrong(key, "expected one value")
        return "" if value is None else str(value)

    def port(self, key):
        text = self.text(key)
        if text and not (text.isdecimal() and 1 <= int(text) <= 65535):
            raise self.wrong(key, "'%s' is no port" % text[:64])
        return int(text or 0)


def add_once(values, value):
    if value not in values:
        values.append(value)


def merge(config, directory, overrides):
    """Adds to config what the files say; the lines that tell where each of it is from."""
    registry = Merged("service_registry.yml", directory, overrides)
    proxy = Merged("control_proxy.yml", directory, overrides)
    if not registry.found and not proxy.found:
        raise Wrong(directory + " holds neither service_registry.yml nor control_proxy.yml")
    # A truncated file, as from a full disk, would silently remove all names.
    if registry.found and registry.values.get("services") is None:
        raise Wrong(registry.path + ": has no services")
    if proxy.found and not proxy.values:
        raise Wrong(proxy.path + ": is empty")
    sources = ["%s: does not exist" % file.path for file in (registry, proxy) if not file.found]

    def note(file, key, added):
        sources.append("%s: %s: %s" % (file.paths[key], key, added))

    services = registry.values.get("services") or {}
    if not isinstance(services, dict):
        raise registry.wrong("services", "expected a map")
    if not all(isinstance(name, str) for name in services):
        raise registry.wrong("services", "expected names")
    names = config.setdefault("services", [])
    for name in (*services, *SERVICES):
        add_once(names, name)
    if services:
        note(registry, "services", "services")
    aliases = config.setdefault("aliases", {})
    for program, service in ALIASES.items():
        aliases.setdefault(program, service)

    port = proxy.port("local_port")
    if port:
        add_once(config.setdefault("proxy_ports", []), port)
        note(proxy, "local_port", "proxy_ports")
    ports = config.setdefault("sni_ports", list(DEFAULTS["sni_ports"]))
    for key in SNI_PORTS:
        port = proxy.port(key)
        if port:
            add_once(ports, port)
            note(proxy, key, "sni_ports")
    # The names to compare have no trailing dot.
    cloud = proxy.text("cloud_address").rstrip(".")
    if cloud:
        if set(cloud) & set(":/ "):
            raise proxy.wrong("cloud_address", "'%s': expected a host, without a port" % cloud[:64])
        # A service calls "streamer-<cloud_address>". The first matching suffix is cut.
        suffixes = config.setdefault("destination_suffixes", list(DEFAULTS["destination_suffixes"]))
        suffixes.insert(0, "-" + cloud)
        note(proxy, "cloud_address", "destination_suffixes")
    return sources


def write(path, text):
    """Replaces the file as a whole: a load never reads a part of it."""
    try:
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(path + ".new", path)
    except OSError as error:
        raise Wrong("%s: %s" % (path, error.strerror)) from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", metavar="DIR", default="/etc/magma", help="Magma's files (default %(default)s)")
    parser.add_argument("--overrides", metavar="DIR", help="newer ones (default /var/opt/magma/configs, if it is there)")
    parser.add_argument("--config", metavar="FILE", help="keys of your own, such as uplinks, which are kept")
    parser.add_argument("--output", metavar="FILE", help="the file to write (default: standard output)")
    options = parser.parse_args()
    try:
        if options.overrides and not os.path.isdir(options.overrides):
            raise Wrong("--overrides %s: no such directory" % options.overrides)
        config = (read(options.config) if options.config else {})
        if config is None:
            raise Wrong("--config %s: no such file" % options.config)
        sources = merge(config, options.directory, options.overrides or "/var/opt/magma/configs")
        text = "# Made by magma_config.py. A load after it says what is wrong with a value.\n"
        text += "".join("# from %s\n" % " ".join(source.split()) for source in sources)
        text += yaml.safe_dump(config, default_flow_style=False, sort_keys=False)
        if options.output:
            write(options.output, text)
        else:
            sys.stdout.write(text)
    except Wrong as error:
        sys.exit("magma_config.py: %s" % " ".join(str(error).split()))


if __name__ == "__main__":
    main()
