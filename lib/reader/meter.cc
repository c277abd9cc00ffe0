// SPDX-License-Identifier: BSD-3-Clause
// How a Meter follows the meter of the kernel.
//
// A Source is one opened meter of the kernel: its maps in memory, and the reader that
// turns them into samples. Each read asks Current() for it. Usually this only checks a
// flag in the maps. `unload` sets the flag when it removes the maps, so no read makes a
// system call to detect a change.
//
// If the flag is set, Current() opens what is pinned now: the meter of a later load, or
// nothing. If nothing is pinned, reads look again once a second. A reader in another
// thread keeps the old Source alive until the read ends.
//
// A new meter may not know this process. So the Meter keeps the registered name, and
// registers it again with each meter that it opens. While the kernel refuses the name,
// its series belong to other processes, and ReadService() fails.
#include "netmeter/meter.h"

#include <chrono>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "lib/base/no_throw.h"
#include "lib/base/path.h"
#include "lib/reader/control.h"
#include "lib/reader/meter_access.h"
#include "lib/reader/series_reader.h"
#include "lib/reader/shared_maps.h"
#include "lib/reader/uplinks.h"

namespace netmeter {
namespace {

using internal::MapView;
using internal::SeriesReader;
using internal::SharedMaps;
using internal::WithoutThrowing;
using Clock = std::chrono::steady_clock;

// PATH_MAX minus a slash and the name of a pin.
constexpr size_t kMaxPinDirBytes = 4000;

constexpr std::chrono::seconds kRetryInterval(1);
// A read tries again and again. So it waits only briefly for a `netmeter-fds` that hangs,
// because its caller has other work.
constexpr std::chrono::milliseconds kShortOpenTimeout(100);

struct ExtentsError : std::runtime_error {
  explicit ExtentsError(const absl::Status& error)
      : std::runtime_error("no further extents"), status(error) {}
  const absl::Status status;
};

// What a read is for: the series of this process's service, or any.
enum class Whose { kAny, kOwn };

// An opened meter of the kernel.
struct Source {
  explicit Source(std::shared_ptr<const SharedMaps> shared)
      : maps(std::move(shared)), reader(maps->view(), [this](MapView* view) {
          const absl::Status status = maps->Extend(view);
          // A sum that lacks an extent would be wrong.
          if (!status.ok()) throw ExtentsError(status);
          return true;
        }) {}

  const std::shared_ptr<const SharedMaps> maps;
  SeriesReader reader;
};

}  // namespace

class Rows::Impl : public internal::SampleRows {};

Rows::Rows() = default;
Rows::~Rows() = default;

size_t Rows::size() const { return impl_ == nullptr ? 0 : impl_->rows.size(); }

const netmeter_sample& Rows::operator[](size_t index) const {
  return impl_->rows[index];
}

class Meter::Impl {
 public:
  explicit Impl(const MeterOptions& options) : options_(options) {
    // The working directory may change later.
    options_.pin_dir = internal::CanonicalPath(options_.pin_dir);
  }

  absl::Status Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_error_ = Reopen(SharedMaps::kOpenTimeout);
    return options_.wait_for_loader ? absl::OkStatus() : open_error_;
  }

  absl::Status Register(absl::string_view service) {
    const absl::Status valid = internal::CheckName("service name", service);
    if (!valid.ok()) return valid;
    const std::lock_guard<std::mutex> lock(mutex_);
    const absl::Status status = internal::RegisterProcess(service);
    if (!status.ok() && !options_.wait_for_loader) return status;
    service_ = std::make_shared<const std::string>(service);
    registered_ = false;
    granted_by_.reset();
    Answered(status);
    next_registration_ = Clock::now() + kRetryInterval;
    return absl::OkStatus();
  }

  // The source to read from; usually the present one. When a read is for the series of
  // this process, returns an error if the kernel has refused the process its name.
  absl::StatusOr<std::shared_ptr<Source>> Current(Whose whose) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (source_ != nullptr && source_->maps->closed()) {
      source_.reset();
      next_open_ = Clock::time_point::min();
    }
    if (source_ == nullptr && Clock::now() >= next_open_) {
      open_error_ = Reopen(kShortOpenTimeout);
    }
    if (source_ == nullptr) {
      return absl::UnavailableError(
          absl::StrCat("waiting for a meter: ", open_error_.message()));
    }
    RegisterIfDue();
    if (whose == Whose::kOwn && !refusal_.ok()) return refusal_;
    return source_;
  }

  // Calls `read` with the source. It runs without the lock of this object, because the
  // reader has its own lock.
  template <typename Result, typename Function>
  absl::StatusOr<Result> Read(Whose whose, const Function& read) {
    return WithoutThrowing([&]() -> absl::StatusOr<Result> {
      const auto source = Current(whose);
      if (!source.ok()) return source.status();
      try {
        return read(&(*source)->reader);
      } catch (const ExtentsError& error) {
        return error.status;
      }
    });
  }

  // Null if memory runs out at the first read.
  static internal::SampleRows* MemoryOf(Rows* rows) {
    if (rows->impl_ == nullptr) {
      rows->impl_.reset(new (std::nothrow) Rows::Impl);
    }
    return rows->impl_.get();
  }

  // Reads into the caller's memory: a vector of samples, or rows.
  template <typename To>
  absl::Status ReadService(To* to) {
    const auto registered = WithoutThrowing([&] { return service(); });
    if (!registered.ok()) return registered.status();
    return ReadInto(Whose::kOwn, [&](SeriesReader* reader) {
      reader->ReadService(**registered, to);
    });
  }
  template <typename To>
  absl::Status ReadService(absl::string_view service, To* to) {
    return ReadInto(Whose::kAny, [&](SeriesReader* reader) {
      reader->ReadService(service, to);
    });
  }
  template <typename To>
  absl::Status ReadHost(To* to) {
    return ReadInto(Whose::kAny,
                    [&](SeriesReader* reader) { reader->ReadAll(to); });
  }

  absl::StatusOr<std::vector<Uplink>> ReadUplinks() {
    return WithoutThrowing([&]() -> absl::StatusOr<std::vector<Uplink>> {
      const auto source = Current(Whose::kAny);
      if (!source.ok()) return source.status();
      try {
        return internal::ReadUplinks(*(*source)->maps,
                                     (*source)->reader.ReadAll());
      } catch (const ExtentsError& error) {
        return error.status;
      }
    });
  }

  absl::StatusOr<std::vector<Uplink>> ReadLinks() {
    const auto source = Current(Whose::kAny);
    if (!source.ok()) return source.status();
    const SharedMaps& maps = *(*source)->maps;
    if (maps.view().info->uplinks_network == 0) return std::vector<Uplink>();
    return internal::ReadUplinks(maps, {});
  }

  // Calls `read` to read into the caller's memory.
  template <typename Function>
  absl::Status ReadInto(Whose whose, const Function& read) {
    return WithoutThrowing([&] {
      const auto source = Current(whose);
      if (!source.ok()) return source.status();
      try {
        read(&(*source)->reader);
      } catch (const ExtentsError& error) {
        return error.status;
      }
      return absl::OkStatus();
    });
  }

  // The registered service. Shared instead of copied, so that a read allocates nothing.
  absl::StatusOr<std::shared_ptr<const std::string>> service() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (service_ == nullptr) {
      return absl::FailedPreconditionError(
          "no service is registered: register one, or open the meter with "
          "its name");
    }
    return service_;
  }

 private:
  // Opens what is pinned. Sets source_, or the time of the next try.
  absl::Status Reopen(std::chrono::milliseconds timeout) {
    const internal::WithoutCancellation guard;
    open_error_ = internal::OutOfMemory();  // unless the end is reached
    absl::StatusOr<std::shared_ptr<const SharedMaps>> maps =
        SharedMaps::Open(options_.pin_dir, timeout);
    next_open_ = Clock::now() + kRetryInterval;
    if (!maps.ok()) return maps.status();
    if ((*maps)->closed()) {
      return absl::NotFoundError(
          absl::StrCat("no meter at ", options_.pin_dir, " (it was unloaded)"));
    }
    source_ = std::make_shared<Source>(*std::move(maps));
    // This meter may not know this process.
    registered_ = false;
    next_registration_ = Clock::time_point::min();
    return absl::OkStatus();
  }

  // Tries again a second after an error.
  void RegisterIfDue() {
    if (service_ == nullptr || registered_) return;
    if (Clock::now() < next_registration_) return;
    const internal::WithoutCancellation guard;
    next_registration_ = Clock::now() + kRetryInterval;
    Answered(internal::RegisterProcess(*service_));
  }

  // Records the kernel's answer to the name. If a load gives the name to another user, a
  // process that has it with this meter keeps it. So a refusal is ignored then.
  void Answered(const absl::Status& status) {
    const uint64_t meter = source_ == nullptr ? 0 : source_->maps->created_ns();
    if (status.ok()) {
      internal::ClaimActivatedSockets(*service_, meter);
      registered_ = true;
      granted_by_ = meter;
    }
    refusal_ = absl::IsPermissionDenied(status) && granted_by_ != meter
                   ? status
                   : absl::OkStatus();
  }

  MeterOptions options_;
  mutable std::mutex mutex_;
  // mutex_ guards everything below.
  std::shared_ptr<Source> source_;
  absl::Status open_error_;
  Clock::time_point next_open_ = Clock::time_point::min();
  std::shared_ptr<const std::string> service_;  // null: none
  bool registered_ = false;                     // with the meter of source_
  absl::optional<uint64_t>
      granted_by_;        // created_ns of the last meter that accepted it
  absl::Status refusal_;  // for service_, by a meter that refused it
  Clock::time_point next_registration_ = Clock::time_point::min();
};

Meter::Meter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Meter::~Meter() {
  const internal::WithoutCancellation guard;
  impl_.reset();
}

absl::StatusOr<std::unique_ptr<Meter>> Meter::Open(
    const MeterOptions& options) {
  const internal::WithoutCancellation guard;
  return WithoutThrowing([&]() -> absl::StatusOr<std::unique_ptr<Meter>> {
    if (options.pin_dir.empty()) {
      return absl::InvalidArgumentError("pin_dir is empty");
    }
    if (options.pin_dir.size() > kMaxPinDirBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("pin_dir has ", options.pin_dir.size(),
                       " bytes, at most ", kMaxPinDirBytes, " can be"));
    }
    if (options.pin_dir.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError("pin_dir contains a NUL");
    }
    if (!options.service.empty()) {
      const absl::Status valid =
          internal::CheckName("service name", options.service);
      if (!valid.ok()) return valid;
    }
    std::unique_ptr<Impl> impl(new Impl(options));
    absl::Status status = impl->Open();
    if (status.ok() && !options.service.empty()) {
      status = impl->Register(options.service);
    }
    if (!status.ok()) return status;
    return std::unique_ptr<Meter>(new Meter(std::move(impl)));
  });
}

absl::Status Meter::Register(absl::string_view service) {
  const internal::WithoutCancellation guard;
  return WithoutThrowing([&] { return impl_->Register(service); });
}

absl::StatusOr<std::vector<Sample>> Meter::ReadService() const {
  const auto service = WithoutThrowing([&] { return impl_->service(); });
  if (!service.ok()) return service.status();
  return impl_->Read<std::vector<Sample>>(
      Whose::kOwn,
      [&](SeriesReader* reader) { return reader->ReadService(**service); });
}

absl::StatusOr<std::vector<Sample>> Meter::ReadService(
    absl::string_view service) const {
  return impl_->Read<std::vector<Sample>>(
      Whose::kAny,
      [&](SeriesReader* reader) { return reader->ReadService(service); });
}

absl::StatusOr<std::vector<Sample>> Meter::ReadHost() const {
  return impl_->Read<std::vector<Sample>>(
      Whose::kAny, [](SeriesReader* reader) { return reader->ReadAll(); });
}

absl::Status Meter::ReadService(std::vector<Sample>* samples) const {
  return impl_->ReadService(samples);
}

absl::Status Meter::ReadService(absl::string_view service,
                                std::vector<Sample>* samples) const {
  return impl_->ReadService(service, samples);
}

absl::Status Meter::ReadHost(std::vector<Sample>* samples) const {
  return impl_->ReadHost(samples);
}

absl::Status Meter::ReadService(Rows* rows) const {
  internal::SampleRows* const to = Impl::MemoryOf(rows);
  return to == nullptr ? internal::OutOfMemory() : impl_->ReadService(to);
}

absl::Status Meter::ReadService(absl::string_view service, Rows* rows) const {
  internal::SampleRows* const to = Impl::MemoryOf(rows);
  return to == nullptr ? internal::OutOfMemory()
                       : impl_->ReadService(service, to);
}

absl::Status Meter::ReadHost(Rows* rows) const {
  internal::SampleRows* const to = Impl::MemoryOf(rows);
  return to == nullptr ? internal::OutOfMemory() : impl_->ReadHost(to);
}

absl::Status internal::MeterAccess::ReadHostByOwner(
    const Meter& meter, std::vector<Sample>* samples) {
  return meter.impl_->ReadInto(Whose::kAny, [&](SeriesReader* reader) {
    reader->ReadAllByOwner(samples);
  });
}

absl::StatusOr<std::vector<Uplink>> internal::MeterAccess::ReadLinks(
    const Meter& meter) {
  const internal::WithoutCancellation guard;
  return meter.impl_->ReadLinks();
}

absl::StatusOr<Health> Meter::ReadHealth() const {
  return impl_->Read<Health>(
      Whose::kAny, [](SeriesReader* reader) { return reader->ReadHealth(); });
}

absl::StatusOr<std::vector<Uplink>> Meter::ReadUplinks() const {
  const internal::WithoutCancellation guard;
  return impl_->ReadUplinks();
}

absl::Status RegisterProcess(absl::string_view service) {
  const internal::WithoutCancellation guard;
  return WithoutThrowing([&] {
    absl::Status status = internal::CheckName("service name", service);
    if (!status.ok()) return status;
    status = internal::RegisterProcess(service);
    if (status.ok()) internal::ClaimActivatedSockets(service, 0);
    return status;
  });
}

absl::Status TagSocket(int fd, absl::string_view destination) {
  const internal::WithoutCancellation guard;
  return WithoutThrowing(
      [&] { return internal::TagDescriptor(fd, destination); });
}

absl::Status SetSocketService(int fd, absl::string_view service) {
  const internal::WithoutCancellation guard;
  return WithoutThrowing(
      [&] { return internal::NameServiceOfDescriptor(fd, service); });
}

}  // namespace netmeter
