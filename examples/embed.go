// SPDX-License-Identifier: BSD-3-Clause

// The example of the README in Go, by cgo, for an installed libnetmeter:
//
//	go build embed.go && ./embed
package main

/*
#cgo pkg-config: netmeter
#include <netmeter/netmeter.h>
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"net"
	"os"
	"unsafe"
)

func open(service string) (*C.netmeter_meter, error) {
	// In C memory, because C must not get a Go pointer to memory with Go pointers.
	name := C.CString(service)
	defer C.free(unsafe.Pointer(name))
	options := (*C.struct_netmeter_options)(C.calloc(1, C.sizeof_struct_netmeter_options))
	defer C.free(unsafe.Pointer(options))
	options.size = C.sizeof_struct_netmeter_options
	options.service = name
	options.service_length = C.size_t(len(service))
	var meter *C.netmeter_meter
	var failure C.struct_netmeter_error
	if C.netmeter_open(options, &meter, &failure) != C.NETMETER_OK {
		return nil, fmt.Errorf("%s", C.GoString(&failure.message[0]))
	}
	return meter, nil
}

func main() {
	meter, err := open("my-service")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer C.netmeter_close(meter)
	// The service's own work, unchanged. Here, a datagram of five bytes:
	connection, err := net.Dial("udp", "192.0.2.1:9")
	if err == nil {
		_, _ = connection.Write([]byte("hello"))
	}
	samples := C.netmeter_samples_new()
	defer C.netmeter_samples_free(samples)
	var failure C.struct_netmeter_error
	if C.netmeter_read_service(meter, nil, 0, samples, &failure) != C.NETMETER_OK {
		fmt.Fprintln(os.Stderr, C.GoString(&failure.message[0]))
		os.Exit(1)
	}
	for i := C.size_t(0); i < C.netmeter_samples_count(samples); i++ {
		sample := C.netmeter_samples_get(samples, i)
		fmt.Printf("%s, %s: sent %d bytes, received %d\n", C.GoString(sample.name),
			C.GoString(C.netmeter_transport_name(C.int(sample.transport))),
			uint64(sample.tx_bytes), uint64(sample.rx_bytes))
	}
}
