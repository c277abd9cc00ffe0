// SPDX-License-Identifier: BSD-3-Clause
// The mechanical half of the Python package: the C++ API in bytes, tuples and integers.
// netmeter/ has the API for users, with docstrings. _netmeter.pyi has the types of this
// file.
//
// Threads: every call into the library runs without the GIL, so that other Python
// threads run meanwhile, and inside the fork gate (below). It holds its own reference
// to the meter, so that a close() in another thread cannot destroy the meter.
//
// Lock order: threads wait for the gate without the GIL. The forking thread needs the
// GIL to continue, so a thread that waited with the GIL would wait forever.

#include <pthread.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <sys/types.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <map>
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
#include "netmeter/connections.h"
#include "netmeter/meter.h"
#include "netmeter/publish.h"

namespace netmeter {
namespace {

namespace py = pybind11;

// Keeps all threads out of the library while another thread forks. Otherwise the child
// would inherit a held lock, and wait for it forever. os.fork() calls the gate through
// os.register_at_fork(); a direct fork(2) does not.
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

  // One fork at a time. Other modules' hooks may call the library meanwhile, in the
  // forking thread.
  void BeforeFork() {
    if (forking_here_++ != 0) return;  // the hook of a second import
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
  int inside_ = 0;        // threads inside the library
  bool forking_ = false;  // a thread is between BeforeFork() and AfterFork...()
  // Not 0 if this is the forking thread. Hooks that other modules registered earlier run
  // in this thread meanwhile and may call the library: no other thread is inside.
  static thread_local int forking_here_;
};

thread_local int ForkGate::forking_here_ = 0;

ForkGate* Gate() {
  // Never destroyed, because threads may outlive static objects.
  alignas(ForkGate) static char memory[sizeof(ForkGate)];
  static ForkGate* const gate = new (memory) ForkGate;
  return gate;
}

// Makes a new gate in the child, because the threads that waited at the parent's gate do
// not exist there. Runs by pthread_atfork(3), because Python hooks that other modules
// registered earlier run before ours, and may start threads.
void MakeGateOfChild() { new (Gate()) ForkGate; }

// Calls PyEval_RestoreThread(). If the interpreter is ending, that call ends daemon
// threads, such as prometheus_client's, with pthread_exit. It would unwind our C++ frames
// without the GIL and through noexcept functions, which aborts the process. So the
// thread waits for the end of the process instead, as in Python 3.14.
void TakeGil(PyThreadState* state) {
  try {
    PyEval_RestoreThread(state);
  } catch (...) {
    while (true) pause();
  }
}

// Calls function(), which must not throw, without the GIL and inside the gate. It waits
// for the gate without the GIL, and leaves the gate before it takes the GIL.
template <typename Function>
auto InLibrary(const Function& function) -> decltype(function()) {
  PyThreadState* const state = PyEval_SaveThread();
  Gate()->Enter();
  auto result = function();
  Gate()->Leave();
  TakeGil(state);
  return result;
}

// Names may have any bytes. Bytes that are not UTF-8 become lone surrogates (PEP 383);
// .encode("utf-8", "surrogateescape") reverses this.
py::str Text(const std::string& bytes) {
  PyObject* text = PyUnicode_DecodeUTF8(
      bytes.data(), static_cast<ssize_t>(bytes.size()), "surrogateescape");
  if (text == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(text);
}

// Text() with one object for equal strings, because a host has few services and many
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

// The error classes are defined in Python, in __init__.py.
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

// Returns tuples in the field order of netmeter.Sample.
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

// In the field order of netmeter.Health and sample.h.
py::tuple ToPython(const Health& h) {
  py::list misattributed;
  for (const Misattribution& row : h.misattributed) {
    misattributed.append(py::make_tuple(row.unit, row.reason, row.count));
  }
  return py::make_tuple(Text(h.version), Text(h.abi), Text(h.kernel),
                        Text(h.cgroup), Text(h.config_hash), h.start_time_ns,
                        h.load_time_ns, h.series, h.max_series, h.names,
                        h.max_names, h.evicted_series, h.evicted_names,
                        misattributed);
}

py::tuple ToPython(const UplinkCounts& c) {
  return py::make_tuple(c.interface_bytes, c.interface_packets, c.local_bytes,
                        c.local_packets, c.forwarded_bytes, c.forwarded_packets,
                        c.layer2_header_bytes, c.unnamed_bytes,
                        c.unnamed_packets);
}

// In the field order of netmeter.Uplink and uplinks.h; rows are tuples, too.
py::tuple ToPython(const Uplink& uplink) {
  py::list interfaces, forwarded;
  for (const UplinkInterface& i : uplink.interfaces) {
    interfaces.append(py::make_tuple(Text(i.name), i.index, i.tx_bytes,
                                     i.rx_bytes, i.tx_packets, i.rx_packets,
                                     i.tx_header_bytes, i.rx_header_bytes,
                                     i.has_left, Text(i.not_counted)));
  }
  for (const ForwardedTraffic& f : uplink.forwarded) {
    forwarded.append(py::make_tuple(Text(f.interface), Text(f.client),
                                    f.tx_bytes, f.rx_bytes, f.tx_packets,
                                    f.rx_packets));
  }
  return py::make_tuple(Text(uplink.name), uplink.is_paid,
                        uplink.leads_to_clients, ToPython(uplink.tx),
                        ToPython(uplink.rx), interfaces, forwarded,
                        Text(uplink.unknown), Text(uplink.forwarded_unknown),
                        uplink.forwarded_began_later);
}

// In the field order of netmeter.Connection and connections.h.
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

py::object ToPython(uint64_t value) { return py::int_(value); }
py::object ToPython(bool value) { return py::bool_(value); }
py::object ToPython(uint16_t value) { return py::int_(value); }
py::object ToPython(const std::string& text) { return Text(text); }
py::object ToPython(Kind kind) { return Text(KindName(kind)); }
py::object ToPython(Transport transport) {
  return Text(TransportName(transport));
}
py::object ToPython(Path path) { return Text(PathName(path)); }
py::object ToPython(const std::map<std::string, std::string>& labels) {
  py::dict dict;
  for (const auto& [label, text] : labels) dict[Text(label)] = Text(text);
  return dict;
}

// In the field order of netmeter.FlowRecord. kind, transport and path are words.
py::tuple ToPython(const FlowRecord& record) {
  py::list values;
  internal::VisitFields(&record, [&](uint32_t, const char*, auto* member) {
    values.append(ToPython(*member));
  });
  return py::tuple(values);
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
      // All metrics of one family have the same label names.
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

// netmeter::Meter. Shared, so that a method keeps its meter even if another thread
// closes it meanwhile.
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

  py::list ReadUplinks() const {
    const std::shared_ptr<const Meter> meter = meter_;
    const absl::StatusOr<std::vector<Uplink>> uplinks =
        InLibrary([&meter] { return meter->ReadUplinks(); });
    RaiseUnlessOk(uplinks.status());
    py::list list;
    for (const Uplink& uplink : *uplinks) list.append(ToPython(uplink));
    return list;
  }

  // Errors of the meter become netmeter_up 0. Raises only for wrong arguments.
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

// netmeter::FlowDecoder. It makes no system call, so it keeps the GIL as its lock.
class PyFlowDecoder {
 public:
  void Append(const py::bytes& bytes) {
    RaiseUnlessOk(decoder_.Append(std::string(bytes)));
  }

  // None: the record is not complete yet.
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
                     KindName(Kind::kContainer), KindName(Kind::kEvicted),
                     KindName(Kind::kUser), KindName(static_cast<Kind>(-1)));
  m.attr("TRANSPORTS") = py::make_tuple(
      TransportName(Transport::kOther), TransportName(Transport::kTcp),
      TransportName(Transport::kUdp), TransportName(Transport::kSctp),
      TransportName(Transport::kIcmp),
      TransportName(static_cast<Transport>(-1)));
  m.attr("SCOPES") =
      py::make_tuple(ScopeName(Scope::kService), ScopeName(Scope::kHost),
                     ScopeName(Scope::kUnregistered));
  m.attr("RTT_BOUNDS_US") = py::tuple(py::cast(TcpConnections::RttBoundsUs()));
  m.attr("PATHS") =
      py::make_tuple(PathName(Path::kDirect), PathName(Path::kProxy),
                     PathName(static_cast<Path>(-1)));

  py::class_<PyMeter>(m, "Meter")
      // Without this, __new__ makes an object of raw memory, and every method crashes.
      .def_static("__new__",
                  [](const py::args&, const py::kwargs&) {
                    throw py::type_error("use Meter.open()");
                  })
      .def_static("open", &PyMeter::Open, py::arg("pin_dir"),
                  py::arg("service"), py::arg("wait_for_loader"))
      .def("register", &PyMeter::Register, py::arg("service"))
      // For a method with py::arg(), pybind11 refuses None as the object. For others it
      // passes None as a null pointer, but never as a reference: so these take one.
      .def("read_own_service",
           [](const PyMeter& meter) { return meter.ReadOwnService(); })
      .def("read_service", &PyMeter::ReadService, py::arg("service"))
      .def("read_host", [](const PyMeter& meter) { return meter.ReadHost(); })
      .def("read_health",
           [](const PyMeter& meter) { return meter.ReadHealth(); })
      .def("read_uplinks",
           [](const PyMeter& meter) { return meter.ReadUplinks(); })
      .def("families", &PyMeter::Families, py::arg("scope"),
           py::arg("families"), py::arg("omit_zeros") = false,
           py::arg("names_without_total") = false);
  m.def("register_process", &RegisterProcessOfPython, py::arg("service"));
  m.def("tag_socket", &TagSocketOfPython, py::arg("fd"),
        py::arg("destination"));
  m.def("set_socket_service", &SetSocketServiceOfPython, py::arg("fd"),
        py::arg("service"));

  py::list names;
  const FlowRecord record;
  internal::VisitFields(
      &record, [&](uint32_t, const char* name, auto*) { names.append(name); });
  m.attr("FLOW_RECORD_FIELDS") = py::tuple(names);
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

// PYBIND11_MODULE, with a check that refuses subinterpreters. pybind11 would wait there
// for the GIL that it holds. Python calls this only once: see __init__.py.
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
  return nullptr;  // the macro of pybind11 3 returns no value
}
