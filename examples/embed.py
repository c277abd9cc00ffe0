import socket

import netmeter

with netmeter.Meter.open(service="my-service") as meter:
    # The service's own work, unchanged. Here, a datagram of five bytes:
    socket.socket(type=socket.SOCK_DGRAM).sendto(b"hello", ("192.0.2.1", 9))
    for s in meter.read_service():
        print(f"{s.name}, {s.transport.value}: sent {s.tx_bytes} bytes, received {s.rx_bytes}")
