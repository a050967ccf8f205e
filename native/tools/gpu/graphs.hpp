// SPDX-License-Identifier: Apache-2.0
// Captured graphs: the driver's calls for them, which only these tools need.
#pragma once

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "gpu/ranks.hpp"

namespace gpu {

struct Graph {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
};

class GraphCalls {
 public:
  // Throws where the driver lacks one.
  GraphCalls() {
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
    const auto find = [&](auto& to, const char* name) {
      void* symbol = ::dlsym(library, name);
      if (symbol == nullptr) throw Problem(std::string(name) + " is missing");
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(symbol);
    };
    find(begin_, "cuStreamBeginCapture_v2");
    find(end_, "cuStreamEndCapture");
    find(instantiate_, "cuGraphInstantiateWithFlags");
    find(launch_, "cuGraphLaunch");
    find(destroy_, "cuGraphDestroy");
    find(destroy_exec_, "cuGraphExecDestroy");
  }

  // What `body` puts on the stream, as a graph.
  template <class F>
  Graph capture(const Rank& self, CUstream stream, CUstreamCaptureMode mode, F&& body) const {
    Graph made;
    self.cu(begin_(stream, mode), "begin capture");
    body();
    self.cu(end_(stream, &made.graph), "end capture");
    self.cu(instantiate_(&made.exec, made.graph, 0), "instantiate");
    return made;
  }
  void launch(const Rank& self, const Graph& graph, CUstream stream) const { self.cu(launch_(graph.exec, stream), "launch"); }
  void destroy(const Rank& self, const Graph& graph) const {
    self.cu(destroy_exec_(graph.exec), "destroy");
    self.cu(destroy_(graph.graph), "destroy");
  }

 private:
  CUresult (*begin_)(CUstream, CUstreamCaptureMode) = nullptr;
  CUresult (*end_)(CUstream, CUgraph*) = nullptr;
  CUresult (*instantiate_)(CUgraphExec*, CUgraph, unsigned long long) = nullptr;
  CUresult (*launch_)(CUgraphExec, CUstream) = nullptr;
  CUresult (*destroy_)(CUgraph) = nullptr;
  CUresult (*destroy_exec_)(CUgraphExec) = nullptr;
};

}  // namespace gpu
