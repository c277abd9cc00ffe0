// SPDX-License-Identifier: BSD-3-Clause

// The example of the README in Rust, for an installed libnetmeter:
//
//     rustc embed.rs -l netmeter && ./embed

use std::ffi::CStr;
use std::os::raw::{c_char, c_int};
use std::{net, process, ptr, slice};

// The used part of <netmeter/netmeter.h>. Structs only grow, at their ends, so a struct
// that the library fills may be declared up to the last member that is read.
#[repr(C)]
struct Options {
    size: usize,
    pin_dir: *const c_char,
    service: *const u8,
    service_length: usize,
    wait_for_loader: i32,
    reserved: i32,
}
#[repr(C)]
struct Error {
    code: i32,
    message: [c_char; 1020],
}
#[repr(C)]
struct Sample {
    size: usize,
    name: *const u8,
    destination: *const u8,
    name_length: u32,
    destination_length: u32,
    kind: i32,
    transport: i32,
    path: i32,
    registered_and_more: [u8; 4],
    tx_bytes: u64,
    rx_bytes: u64,
}
enum Meter {}
enum Samples {}
#[link(name = "netmeter")]
extern "C" {
    fn netmeter_open(o: *const Options, meter: *mut *mut Meter, e: *mut Error) -> c_int;
    fn netmeter_close(meter: *mut Meter);
    fn netmeter_samples_new() -> *mut Samples;
    fn netmeter_samples_free(samples: *mut Samples);
    fn netmeter_read_service(
        meter: *mut Meter, service: *const u8, length: usize, samples: *mut Samples, e: *mut Error,
    ) -> c_int;
    fn netmeter_samples_count(samples: *const Samples) -> usize;
    fn netmeter_samples_get(samples: *const Samples, index: usize) -> *const Sample;
    fn netmeter_transport_name(transport: c_int) -> *const c_char;
}

fn main() {
    let mut error = Error { code: 0, message: [0; 1020] };
    let fail = |error: &Error| -> ! {
        eprintln!("{}", unsafe { CStr::from_ptr(error.message.as_ptr()) }.to_string_lossy());
        process::exit(1)
    };
    let service = "my-service";
    let options = Options {
        size: std::mem::size_of::<Options>(),
        pin_dir: ptr::null(),
        service: service.as_ptr(),
        service_length: service.len(),
        wait_for_loader: 0,
        reserved: 0,
    };
    let mut meter = ptr::null_mut();
    if unsafe { netmeter_open(&options, &mut meter, &mut error) } != 0 {
        fail(&error);
    }
    // The service's own work, unchanged. Here, a datagram of five bytes:
    if let Ok(socket) = net::UdpSocket::bind("0.0.0.0:0") {
        let _ = socket.send_to(b"hello", "192.0.2.1:9");
    }
    unsafe {
        let samples = netmeter_samples_new();
        if netmeter_read_service(meter, ptr::null(), 0, samples, &mut error) != 0 {
            fail(&error);
        }
        for i in 0..netmeter_samples_count(samples) {
            let sample = &*netmeter_samples_get(samples, i);
            let name = slice::from_raw_parts(sample.name, sample.name_length as usize);
            let transport = CStr::from_ptr(netmeter_transport_name(sample.transport));
            println!(
                "{}, {}: sent {} bytes, received {}",
                String::from_utf8_lossy(name),
                transport.to_string_lossy(),
                sample.tx_bytes,
                sample.rx_bytes
            );
        }
        netmeter_samples_free(samples);
        netmeter_close(meter);
    }
}
