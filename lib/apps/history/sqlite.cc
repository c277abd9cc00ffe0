// SPDX-License-Identifier: BSD-3-Clause
#include "lib/apps/history/sqlite.h"

#include <errno.h>
#include <sqlite3.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_util.h"

namespace netmeter {
namespace internal {
namespace {

absl::StatusCode CodeOf(int result) {
  switch (result & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return absl::StatusCode::kUnavailable;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return absl::StatusCode::kPermissionDenied;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

Statement::Statement(Database* database, const std::string& sql)
    : database_(database) {
  Check(sqlite3_prepare_v2(database->handle_, sql.data(),
                           static_cast<int>(sql.size()), &statement_, nullptr));
}

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_),
      statement_(std::exchange(other.statement_, nullptr)),
      status_(std::move(other.status_)) {}

Statement::~Statement() { sqlite3_finalize(statement_); }

void Statement::Check(int result) {
  if (result != SQLITE_OK && status_.ok()) status_ = database_->Error(result);
}

Statement& Statement::Bind(int parameter, int64_t value) {
  if (status_.ok()) Check(sqlite3_bind_int64(statement_, parameter, value));
  return *this;
}

Statement& Statement::Bind(int parameter, absl::string_view value) {
  if (status_.ok()) {
    Check(sqlite3_bind_text(statement_, parameter, value.data(),
                            static_cast<int>(value.size()), SQLITE_TRANSIENT));
  }
  return *this;
}

bool Statement::Step() {
  if (!status_.ok()) return false;
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) {
    sqlite3_reset(statement_);
  } else {
    Check(result);
  }
  return false;
}

absl::Status Statement::Run() {
  while (Step()) {
  }
  return status_;
}

int64_t Statement::Integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

std::string Statement::Text(int column) const {
  const unsigned char* text = sqlite3_column_text(statement_, column);
  if (text == nullptr) return "";
  return std::string(
      reinterpret_cast<const char*>(text),
      static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

constexpr std::chrono::milliseconds Database::kTimeout;

absl::StatusOr<std::unique_ptr<Database>> Database::Open(
    const std::string& path, Mode mode, std::chrono::milliseconds timeout) {
  // SQLite only reports "unable to open".
  const int wanted = mode == Mode::kRead ? R_OK : R_OK | W_OK;
  if (access(path.c_str(), wanted) != 0 &&
      !(errno == ENOENT && mode == Mode::kCreate)) {
    return ErrnoStatus(errno, absl::StrCat("open ", path));
  }
  std::unique_ptr<Database> database(new Database(path, timeout));
  const int flags = mode == Mode::kRead ? SQLITE_OPEN_READONLY
                    : mode == Mode::kWrite
                        ? SQLITE_OPEN_READWRITE
                        : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  const int result =
      sqlite3_open_v2(path.c_str(), &database->handle_, flags, nullptr);
  if (result != SQLITE_OK) return database->Error(result);
  sqlite3_busy_timeout(database->handle_, static_cast<int>(timeout.count()));
  sqlite3_extended_result_codes(database->handle_, 1);
  // The log's files stay after the last process closes them, because a process that may
  // not write needs them to read (https://www.sqlite.org/wal.html, "Read-Only
  // Databases"). The limit makes the log empty then. Otherwise it would never become
  // shorter, because each process has to treat the whole log as new.
  int persist = 1;
  sqlite3_file_control(database->handle_, nullptr, SQLITE_FCNTL_PERSIST_WAL,
                       &persist);
  if (mode != Mode::kRead) {
    NETMETER_RETURN_IF_ERROR(database->Execute("PRAGMA journal_size_limit=0"));
  }
  return database;
}

Database::~Database() { sqlite3_close_v2(handle_); }

absl::Status Database::Error(int result) const {
  const int primary = result & 0xff;
  if (primary == SQLITE_BUSY || primary == SQLITE_PROTOCOL) {
    // Any process with the right to read may lock the file with fcntl(2), for any time.
    return absl::UnavailableError(
        absl::StrCat(path_, ": another program has kept its lock for ",
                     std::chrono::duration<double>(timeout_).count(),
                     " seconds (see: fuser ", path_, " ", path_, "-shm)"));
  }
  return absl::Status(
      CodeOf(result),
      absl::StrCat(
          path_, ": ",
          handle_ == nullptr ? "out of memory" : sqlite3_errmsg(handle_)));
}

absl::Status Database::Execute(const std::string& sql) {
  const int result =
      sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  return result == SQLITE_OK ? absl::OkStatus() : Error(result);
}

Statement Database::Prepare(const std::string& sql) {
  return Statement(this, sql);
}

int64_t Database::changes() const { return sqlite3_changes(handle_); }

absl::StatusOr<std::unique_ptr<Transaction>> Transaction::Begin(
    Database* database) {
  NETMETER_RETURN_IF_ERROR(database->Execute("BEGIN IMMEDIATE"));
  return std::unique_ptr<Transaction>(new Transaction(database));
}

Transaction::~Transaction() {
  // If SQLite has already rolled back, as after a full disk, this returns an error.
  if (database_ != nullptr) database_->Execute("ROLLBACK").IgnoreError();
}

absl::Status Transaction::Commit() {
  NETMETER_RETURN_IF_ERROR(database_->Execute("COMMIT"));
  database_ = nullptr;
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace netmeter
