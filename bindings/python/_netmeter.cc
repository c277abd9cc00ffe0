// SPDX-License-Identifier: BSD-3-Clause
// The mechanical half of the Python package: the C++ API as it is, in bytes,
// tuples and integers. What Python's users see, docstrings included, is in
// netmeter/. _netmeter.pyi has the types of this file.
//
// Threads: every call into the library runs without the GIL, so that other threads
// of Python run meanwhile, and inside of the fork gate (below). It holds a
// reference of its own to the meter, so that a close() in another thread cannot
// take the meter away.
//
// Order: threads wait for the gate without the GIL. The thread that forks needs the
// GIL to go on, so one that held it while it waited would wait for ever.

#include <pthread.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <sys/types.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/version.h"
#include "lib/publish/families.h"
#include "lib/reader/flow_record_fields.h"
#include "netmeter/connections.h"
#include "netmeter/meter.h"
#include "netmeter/publish.h"

namespace netmeter {
namespace {

namespace py = pybind11;

// Lets no thread be inside of the library while another one forks: the child
// would inherit its lock, and wait for it for ever. os.fork() comes here by
// os.register_at_fork(); a fork(2) behind Python's back does not.
class ForkGate {
 public:
  void Enter() {
    if (forking_here_ != 0) return;
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !forking_; });
    ++inside_;
  }
  void Leave() {
    if (forking_here_ != 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    --inside_;
    changed_.notify_all();
  }

  // One at a time: the hooks of others may be inside meanwhile, in the thread that forks.
  void BeforeFork() {
    if (forking_here_++ != 0) return;  // of a module that was imported again
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !forking_; });
    forking_ = true;
    changed_.wait(lock, [this] { return inside_ == 0; });
  }
  void AfterForkInParent() {
    if (--forking_here_ != 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    forking_ = false;
    changed_.notify_all();
  }
  static void AfterForkInChild() { forking_here_ = 0; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;        // threads inside of the library
  bool forking_ = false;  // a thread is between BeforeFork() and AfterFork...()
  // Whether this thread is that one. Hooks that others had registered before run in
  // between; they find nobody else inside.
  static thread_local int forking_here_;
};

thread_local int ForkGate::forking_here_ = 0;

ForkGate* Gate() {
  // Never destroyed: threads may outlive the statics.
  alignas(ForkGate) static char memory[sizeof(ForkGate)];
  static ForkGate* const gate = new (memory) ForkGate;
  return gate;
}

// Threads that waited for the parent's gate do not exist in the child, so nothing of its
// state means anything there. By pthread_atfork(3): hooks that others had registered
// before come earlier than ours, and may start threads.
void MakeGateOfChild() { new (Gate()) ForkGate; }

// PyEval_RestoreThread(), which ends the thread (pthread_exit) where the
// interpreter ends: daemon threads, such as prometheus_client's. The C++ frames
// would be unwound for that, without the GIL, and through what is noexcept,
// which aborts. So the thread waits for the end of the process, as Python 3.14
// lets it.
void TakeGil(PyThreadState* state) {
  try {
    PyEval_RestoreThread(state);
  } catch (...) {
    while (true) pause();
  }
}

// function(), which does not throw, without the GIL and inside of the gate: the
// gate is waited for without the GIL, and left before it is taken.
template <typename Function>
auto InLibrary(const Function& function) -> decltype(function()) {
  PyThreadState* const state = PyEval_SaveThread();
  Gate()->Enter();
  auto result = function();
  Gate()->Leave();
  TakeGil(state);
  return result;
}

// Names are any bytes, so bytes that are no UTF-8 become lone surrogates (PEP 383).
// The way back is .encode("utf-8", "surrogateescape").
py::str Text(const std::string& bytes) {
  PyObject* text = PyUnicode_DecodeUTF8(
      bytes.data(), static_cast<ssize_t>(bytes.size()), "surrogateescape");
  if (text == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(text);
}

// Text() that makes one object of equal strings: a host has few services and many
// series.
class Texts {
 public:
  py::str operator()(const std::string& bytes) {
    auto found = known_.find(bytes);
    if (found == known_.end()) {
      found = known_.emplace(bytes, Text(bytes)).first;
    }
    return found->second;
  }

 private:
  std::unordered_map<std::string, py::str> known_;
};

// The classes of errors are Python's own, in __init__.py.
[[noreturn]] void Raise(const absl::Status& status) {
  const py::object error =
      py::module_::import("netmeter")
          .attr("_error")(absl::StatusCodeToString(status.code()),
                          Text(std::string(status.message())));
  PyErr_SetObject(py::type::of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

void RaiseUnlessOk(const absl::Status& status) {
  if (!status.ok()) Raise(status);
}

py::object ToPython(const TcpConnections& tcp) {
  if (!tcp.known) return py::none();
  return py::make_tuple(tcp.opened, tcp.accepted, tcp.closed, tcp.failed,
                        tcp.rtt_us, py::tuple(py::cast(tcp.rtt_buckets)),
                        tcp.resets_sent, tcp.resets_received, tcp.timeouts,
                        tcp.retransmitted_segments);
}

// Tuples in the order of the fields of netmeter.Sample.
py::list ToPython(const std::vector<Sample>& samples) {
  Texts text;
  py::list list(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& s = samples[i];
    list[i] = py::make_tuple(
        text(KindName(s.kind)), text(s.name), text(s.destination),
        text(TransportName(s.transport)), text(PathName(s.path)),
        text(s.uplink), s.registered, s.tx_bytes, s.rx_bytes, s.tx_packets,
        s.rx_packets, s.tx_payload_bytes, s.rx_payload_bytes,
        s.tx_retransmit_bytes, ToPython(s.tcp));
  }
  return list;
}

// In the order of the fields of netmeter.Health, which is that of sample.h.
py::tuple ToPython(const Health& h) {
  return py::make_tuple(
      Text(h.version), Text(h.abi), Text(h.kernel), Text(h.cgroup),
      h.start_time_ns, h.load_time_ns, h.series, h.max_series, h.names,
      h.max_names, h.retired_series, h.retired_names,
      h.lost_packets_series_full, h.lost_packets_series_capped,
      h.lost_packets_storage_failed, h.lost_packets_header_errors,
      h.lost_names_full, h.lost_names_capped, h.lost_processes_full,
      h.lost_sockets_storage_failed);
}

// In the order of the fields of netmeter.Connection, which is that of connections.h.
py::tuple ToPython(const Connection& c) {
  return py::make_tuple(
      c.fd, c.cookie, c.mptcp, Text(c.state), Text(c.local_address),
      c.local_port, Text(c.remote_address), c.remote_port, Text(c.congestion),
      c.rtt_us, c.rtt_variation_us, c.min_rtt_us, c.retransmission_timeout_us,
      c.sent_bytes, c.retransmitted_bytes, c.acknowledged_bytes,
      c.received_bytes, c.unsent_bytes, c.sent_segments, c.received_segments,
      c.retransmitted_segments, c.out_of_order_segments, c.duplicate_segments,
      c.unacknowledged_segments, c.lost_segments, c.timeouts_in_a_row,
      c.timeouts_known, c.timeouts, c.timeout_time_ms, c.delivery_rate,
      c.delivery_limited_by_application, c.pacing_rate, c.busy_us,
      c.limited_by_receiver_us, c.limited_by_buffer_us,
      c.congestion_window_segments, c.segment_bytes, c.path_mtu,
      c.send_window_bytes, c.since_sent_ms, c.since_received_ms,
      py::bytes(c.tcp_info));
}

// In the order of the fields of netmeter.FlowRecord, which is that of connections.h.
py::tuple ToPython(const FlowRecord& record) {
  const auto& fields = internal::FlowRecordFields();
  py::tuple values(fields.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].text != nullptr) {
      values[i] = Text(record.*fields[i].text);
    } else {
      values[i] = record.*fields[i].value;
    }
  }
  return values;
}

const char* TypeName(internal::FamilyType type) {
  switch (type) {
    case internal::FamilyType::kCounter:
      return "counter";
    case internal::FamilyType::kGauge:
      return "gauge";
    case internal::FamilyType::kHistogram:
      return "histogram";
  }
  return "gauge";
}

// [(upper bound in seconds, observations up to it)]
py::list BucketsToPython(const std::vector<uint64_t>& buckets) {
  py::list list;
  uint64_t count = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    count += buckets[i];
    list.append(py::make_tuple(internal::BucketBound(i), count));
  }
  return list;
}

// (name, help, type, names of labels, [(values of labels, value)]); a value of
// a histogram is (buckets, sum in seconds)
py::list ToPython(const std::vector<internal::Family>& families) {
  Texts text;
  py::list list;
  for (const internal::Family& family : families) {
    py::tuple names;
    py::list metrics(family.metrics.size());
    for (size_t i = 0; i < family.metrics.size(); ++i) {
      const internal::Metric& metric = family.metrics[i];
      // All metrics of one family have the same names of labels.
      if (i == 0) names = py::tuple(metric.labels.size());
      py::tuple values(metric.labels.size());
      for (size_t j = 0; j < metric.labels.size(); ++j) {
        if (i == 0) names[j] = text(metric.labels[j].name);
        values[j] = text(metric.labels[j].value);
      }
      py::object value = py::int_(metric.value);
      if (family.type == internal::FamilyType::kHistogram) {
        value = py::make_tuple(BucketsToPython(metric.buckets),
                               static_cast<double>(metric.value) / 1e6);
      }
      metrics[i] = py::make_tuple(values, value);
    }
    list.append(py::make_tuple(text(family.name), text(family.help),
                               TypeName(family.type), names, metrics));
  }
  return list;
}

// netmeter::Meter. Shared, so that a method goes on with the meter that it began
// with, whatever other threads do meanwhile.
class PyMeter {
 public:
  explicit PyMeter(std::shared_ptr<Meter> meter) : meter_(std::move(meter)) {}

  static PyMeter Open(const py::bytes& pin_dir, const py::bytes& service,
                      bool wait_for_loader) {
    MeterOptions options;
    options.pin_dir = std::string(pin_dir);
    options.service = std::string(service);
    options.wait_for_loader = wait_for_loader;
    absl::StatusOr<std::unique_ptr<Meter>> meter =
        InLibrary([&options] { return Meter::Open(options); });
    RaiseUnlessOk(meter.status());
    return PyMeter(*std::move(meter));
  }

  void Register(const std::string& service) {
    const std::shared_ptr<Meter> meter = meter_;
    RaiseUnlessOk(InLibrary([&] { return meter->Register(service); }));
  }

  py::list ReadOwnService() const {
    return Read([](const Meter& meter, std::vector<Sample>* samples) {
      return meter.ReadService(samples);
    });
  }

  py::list ReadService(const std::string& service) const {
    return Read([&service](const Meter& meter, std::vector<Sample>* samples) {
      return meter.ReadService(service, samples);
    });
  }

  py::list ReadHost() const {
    return Read([](const Meter& meter, std::vector<Sample>* samples) {
      return meter.ReadHost(samples);
    });
  }

  py::tuple ReadHealth() const {
    const std::shared_ptr<const Meter> meter = meter_;
    const absl::StatusOr<Health> health =
        InLibrary([&meter] { return meter->ReadHealth(); });
    RaiseUnlessOk(health.status());
    return ToPython(*health);
  }

  // An error of the meter is netmeter_up 0; raises only for wrong arguments.
  py::list Families(const std::string& scope, const std::string& families,
                    bool omit_zeros, bool names_without_total) const {
    PublishOptions options;
    options.scope = ScopeOf(scope);
    const absl::StatusOr<FamilySet> chosen = FamilySet::Parse(families);
    RaiseUnlessOk(chosen.status());
    options.families = *chosen;
    options.omit_zeros = omit_zeros;
    options.names_without_total = names_without_total;
    const std::shared_ptr<const Meter> meter = meter_;
    const std::shared_ptr<internal::SampleBuffer> buffer = buffer_;
    const std::vector<internal::Family> collected = InLibrary(
        [&] { return internal::Collect(meter.get(), options, buffer.get()); });
    return ToPython(collected);
  }

 private:
  static Scope ScopeOf(const std::string& word) {
    for (const Scope scope :
         {Scope::kService, Scope::kHost, Scope::kUnregistered}) {
      if (word == ScopeName(scope)) return scope;
    }
    throw py::value_error("no scope: " + word);
  }

  template <typename Function>
  py::list Read(const Function& function) const {
    const std::shared_ptr<const Meter> meter = meter_;
    const std::shared_ptr<internal::SampleBuffer> buffer = buffer_;
    const internal::SampleBuffer::Lease samples(buffer.get());
    RaiseUnlessOk(InLibrary([&] { return function(*meter, samples.get()); }));
    return ToPython(*samples.get());
  }

  const std::shared_ptr<Meter> meter_;
  const std::shared_ptr<internal::SampleBuffer> buffer_ =
      std::make_shared<internal::SampleBuffer>();
};

void RegisterProcessOfPython(const std::string& service) {
  RaiseUnlessOk(InLibrary([&] { return RegisterProcess(service); }));
}

void TagSocketOfPython(int fd, const std::string& destination) {
  RaiseUnlessOk(InLibrary([&] { return TagSocket(fd, destination); }));
}

void SetSocketServiceOfPython(int fd, const std::string& service) {
  RaiseUnlessOk(InLibrary([&] { return SetSocketService(fd, service); }));
}

py::tuple ReadConnectionOfPython(int fd) {
  const absl::StatusOr<Connection> connection =
      InLibrary([fd] { return ReadConnection(fd); });
  RaiseUnlessOk(connection.status());
  return ToPython(*connection);
}

py::list ReadOwnConnectionsOfPython() {
  const absl::StatusOr<std::vector<Connection>> connections =
      InLibrary([] { return ReadOwnConnections(); });
  RaiseUnlessOk(connections.status());
  py::list list;
  for (const Connection& connection : *connections) {
    list.append(ToPython(connection));
  }
  return list;
}

// netmeter::FlowDecoder, which makes no system call: the GIL is its lock.
class PyFlowDecoder {
 public:
  void Append(const py::bytes& bytes) {
    RaiseUnlessOk(decoder_.Append(std::string(bytes)));
  }

  // None: the rest has to come first.
  py::object Next() {
    FlowRecord record;
    const absl::StatusOr<bool> is_one = decoder_.Next(&record);
    RaiseUnlessOk(is_one.status());
    if (!*is_one) return py::none();
    return ToPython(record);
  }

 private:
  FlowDecoder decoder_;
};

bool InSubinterpreter() {
#if PY_VERSION_HEX >= 0x03090000
  PyInterpreterState* const current = PyInterpreterState_Get();
#else
  PyInterpreterState* const current = PyThreadState_Get()->interp;
#endif
  return current != PyInterpreterState_Main();
}

void Define(py::module_& m) {
  m.attr("__version__") = internal::kVersion;
  m.attr("DEFAULT_PIN_DIR") = MeterOptions().pin_dir;
  m.attr("KINDS") =
      py::make_tuple(KindName(Kind::kService), KindName(Kind::kBinary),
                     KindName(Kind::kUnattributed), KindName(Kind::kOverflow),
                     KindName(Kind::kPending), KindName(Kind::kUnit),
                     KindName(Kind::kContainer), KindName(Kind::kRetired));
  m.attr("TRANSPORTS") = py::make_tuple(
      TransportName(Transport::kOther), TransportName(Transport::kTcp),
      TransportName(Transport::kUdp), TransportName(Transport::kSctp),
      TransportName(Transport::kIcmp));
  m.attr("SCOPES") =
      py::make_tuple(ScopeName(Scope::kService), ScopeName(Scope::kHost),
                     ScopeName(Scope::kUnregistered));
  m.attr("RTT_BOUNDS_US") = py::tuple(py::cast(TcpConnections::RttBoundsUs()));
  m.attr("PATHS") =
      py::make_tuple(PathName(Path::kDirect), PathName(Path::kProxy));

  py::class_<PyMeter>(m, "Meter")
      // Else it makes an object of raw memory, on which any method crashes.
      .def_static("__new__",
                  [](const py::args&, const py::kwargs&) {
                    throw py::type_error("use Meter.open()");
                  })
      .def_static("open", &PyMeter::Open, py::arg("pin_dir"),
                  py::arg("service"), py::arg("wait_for_loader"))
      .def("register", &PyMeter::Register, py::arg("service"))
      // Where a method has py::arg()s, pybind11 refuses None in place of the
      // object; else it makes a null pointer of it, but never a reference.
      .def("read_own_service",
           [](const PyMeter& meter) { return meter.ReadOwnService(); })
      .def("read_service", &PyMeter::ReadService, py::arg("service"))
      .def("read_host", [](const PyMeter& meter) { return meter.ReadHost(); })
      .def("read_health",
           [](const PyMeter& meter) { return meter.ReadHealth(); })
      .def("families", &PyMeter::Families, py::arg("scope"),
           py::arg("families"), py::arg("omit_zeros") = false,
           py::arg("names_without_total") = false);
  m.def("register_process", &RegisterProcessOfPython, py::arg("service"));
  m.def("tag_socket", &TagSocketOfPython, py::arg("fd"),
        py::arg("destination"));
  m.def("set_socket_service", &SetSocketServiceOfPython, py::arg("fd"),
        py::arg("service"));

  py::tuple names(internal::FlowRecordFields().size());
  for (size_t i = 0; i < names.size(); ++i) {
    names[i] = internal::FlowRecordFields()[i].name;
  }
  m.attr("FLOW_RECORD_FIELDS") = names;
  py::class_<PyFlowDecoder>(m, "FlowDecoder")
      .def(py::init<>())
      .def("append", &PyFlowDecoder::Append, py::arg("data"))
      .def("next", [](PyFlowDecoder& decoder) { return decoder.Next(); });
  m.def("read_connection", &ReadConnectionOfPython, py::arg("fd"));
  m.def("read_own_connections", &ReadOwnConnectionsOfPython);

  m.def(
      "check_families",
      [](const std::string& families) {
        RaiseUnlessOk(FamilySet::Parse(families).status());
      },
      py::arg("families"));
  m.def("families_of_error",
        [] { return ToPython(internal::FamiliesOfError()); });

  m.def("in_subinterpreter", &InSubinterpreter);
  m.def("before_fork", [] {
    PyThreadState* const state = PyEval_SaveThread();
    Gate()->BeforeFork();
    TakeGil(state);
  });
  m.def("after_fork_in_parent", [] { Gate()->AfterForkInParent(); });
  m.def("after_fork_in_child", &ForkGate::AfterForkInChild);
  pthread_atfork(nullptr, nullptr, &MakeGateOfChild);
}

}  // namespace
}  // namespace netmeter

// PYBIND11_MODULE, but for the refusal: in a subinterpreter pybind11 waits for
// the GIL that it holds. Python asks us only once: see __init__.py.
extern "C" PYBIND11_EXPORT PyObject* PyInit__netmeter() {
  PYBIND11_CHECK_PYTHON_VERSION
  if (netmeter::InSubinterpreter()) {
    PyErr_SetString(PyExc_ImportError,
                    "netmeter does not support loading in subinterpreters");
    return nullptr;
  }
  PYBIND11_ENSURE_INTERNALS_READY
  static pybind11::module_::module_def definition;
  auto m = pybind11::module_::create_extension_module("_netmeter", nullptr,
                                                      &definition);
  try {
    netmeter::Define(m);
    return m.ptr();
  }
  PYBIND11_CATCH_INIT_EXCEPTIONS
  return nullptr;  // the macro of pybind11 3 returns nothing
}
