// Threads for the kernels.

#pragma once

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <pthread.h>

namespace {

// The pool of threads of the OpenMP library that torch has loaded, whatever its name: a second pool would
// wait in vain for work, spinning, on the cores that the first one needs. Null where there is none.
using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
Parallel pool() {
    static const Parallel found = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    return found;
}

// That pool does not survive a fork: a child whose parent had used it would wait for threads that it has not
// got.
std::atomic<bool> used_pool{false}, lost_pool{false};

bool may_use_pool() {
    static const auto in_child = [] { lost_pool = lost_pool || used_pool; };
    static const bool watched = pthread_atfork(nullptr, nullptr, in_child) == 0;
    if (!pool() || !watched || lost_pool) return false;
    used_pool = true;
    return true;
}

// Calls share() on at most so many threads at once; returns when all are back.
template <class F> void on_threads(int threads, F share) {
    if (may_use_pool()) {
        pool()([](void* data) { (*static_cast<F*>(data))(); }, &share, static_cast<unsigned>(threads), 0);
        return;
    }
    std::vector<std::thread> others;
    try {
        while (static_cast<int>(others.size()) < threads - 1) others.emplace_back(share);
    } catch (const std::system_error&) {  // no more threads to be had
    }
    share();
    for (std::thread& other : others) other.join();
}

}  // namespace
