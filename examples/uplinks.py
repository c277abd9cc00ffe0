import netmeter

with netmeter.Meter.open() as meter:
    for uplink in meter.read_uplinks():
        for way, one in (("sent", uplink.tx), ("received", uplink.rx)):
            print(
                f"{uplink.name} {way} {one.interface_bytes} bytes: local {one.local_bytes}, "
                f"forwarded {one.forwarded_bytes}, layer-2 headers {one.layer2_header_bytes}, "
                f"unnamed {one.unnamed_bytes}"
            )
