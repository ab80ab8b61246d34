#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/free_memory.h"
#include "server/http/exchange.h"

namespace espalier::server::openai {

/// Bodies longer than this are read, rendered and tokenized on the worker threads.
inline constexpr std::size_t offload_bytes = 64 * 1024;
/// What reading and tokenizing takes is some fifty times the body's length; after bodies longer
/// than this it is given back to the system.
inline constexpr std::size_t give_back_bytes = 1024 * 1024;

/// Runs `work` on a worker thread and returns its result. What it refers to must live in the
/// calling coroutine.
template <typename Work>
boost::asio::awaitable<std::invoke_result_t<Work>> on_worker(http::Exchange& exchange, Work work) {
  auto run = [](Work task) -> boost::asio::awaitable<std::invoke_result_t<Work>> {
    co_return task();
  };
  co_return co_await boost::asio::co_spawn(exchange.workers(), run(std::move(work)),
                                           boost::asio::use_awaitable);
}

/// Runs `work` here when the request is small and `long_work` is unset, else on a worker thread,
/// and returns its result. What `work` refers to must live in the calling coroutine.
template <typename Work>
boost::asio::awaitable<std::invoke_result_t<Work>> offload(http::Exchange& exchange, Work work,
                                                           bool long_work = false) {
  const std::size_t bytes = exchange.request().body.size();
  if (!long_work && bytes <= offload_bytes) co_return work();
  if (bytes <= give_back_bytes) co_return co_await on_worker(exchange, std::move(work));
  co_return co_await on_worker(exchange, [work = std::move(work)]() mutable {
    const base::GiveBackFreeMemory give_back;
    return work();
  });
}

}  // namespace espalier::server::openai
