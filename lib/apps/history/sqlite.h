// SPDX-License-Identifier: BSD-3-Clause
// The system's SQLite with Status: the parts that the history needs.
//
//   auto database = Database::Open(path, Database::Mode::kRead);
//   if (!database.ok()) return database.status();
//   Statement query = (*database)->Prepare("SELECT name FROM series WHERE id=?");
//   query.Bind(1, id);
//   while (query.Step()) Use(query.Text(0));
//   if (!query.status().ok()) return query.status();
//
// A statement that failed keeps its error, and does nothing any more: a loop over Step()
// ends, and the caller checks status() once, after it.
//
// Threads: one at a time for each database. Several processes may have the same file
// open.

#ifndef NETMETER_LIB_APPS_HISTORY_SQLITE_H_
#define NETMETER_LIB_APPS_HISTORY_SQLITE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace netmeter {
namespace internal {

class Statement {
 public:
  Statement(Statement&& other) noexcept;
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Parameters count from 1. Text is copied.
  Statement& Bind(int parameter, int64_t value);
  Statement& Bind(int parameter, absl::string_view value);

  // Whether there is a row. False after the last one, and after an error.
  bool Step();
  // Executes a statement without rows, and prepares it for the next values.
  absl::Status Run();

  // Columns of the row count from 0.
  int64_t Integer(int column) const;
  std::string Text(int column) const;

  const absl::Status& status() const { return status_; }

 private:
  friend class Database;
  Statement(class Database* database, const std::string& sql);
  void Check(int result);

  class Database* database_;
  sqlite3_stmt* statement_ = nullptr;
  absl::Status status_;
};

class Database {
 public:
  enum class Mode {
    kRead,    // NotFound if there is none. Needs no right to write
    kWrite,   // NotFound if there is none
    kCreate,  // makes an empty file if there is none
  };

  static constexpr std::chrono::milliseconds kTimeout{10000};

  // Waits for the given time for another process that keeps the file locked.
  //   NotFound            no file, and not kCreate
  //   PermissionDenied    the file, or its directory, may not be opened
  //   ResourceExhausted   the disk is full
  //   Unavailable         another process has locked it for longer
  //   FailedPrecondition  it is not a database, or damaged
  //   Internal            anything else, with SQLite's message
  // Every statement has these errors, too.
  static absl::StatusOr<std::unique_ptr<Database>> Open(
      const std::string& path, Mode mode,
      std::chrono::milliseconds timeout = kTimeout);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // One or more statements without parameters.
  absl::Status Execute(const std::string& sql);
  // Errors are in the statement.
  Statement Prepare(const std::string& sql);
  // The number of rows that the last statement changed.
  int64_t changes() const;
  const std::string& path() const { return path_; }

 private:
  friend class Statement;
  Database(const std::string& path, std::chrono::milliseconds timeout)
      : path_(path), timeout_(timeout) {}
  absl::Status Error(int result) const;

  const std::string path_;
  const std::chrono::milliseconds timeout_;
  sqlite3* handle_ = nullptr;
};

// All or nothing: without a commit the changes are rolled back, however the process ends.
class Transaction {
 public:
  // Takes the right to write at once. If two processes read and then write, the second
  // one waits here, and reads what the first one wrote.
  static absl::StatusOr<std::unique_ptr<Transaction>> Begin(Database* database);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  absl::Status Commit();

 private:
  explicit Transaction(Database* database) : database_(database) {}
  Database* database_;
};

}  // namespace internal
}  // namespace netmeter

#endif  // NETMETER_LIB_APPS_HISTORY_SQLITE_H_
