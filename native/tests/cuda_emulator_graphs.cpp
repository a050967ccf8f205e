// SPDX-License-Identifier: Apache-2.0
// Capture and replay: a graph is a list of nodes, each of one of the captured streams; a replay runs every stream's nodes on a
// thread of its own, as they wait for each other.
#include <map>
#include <set>
#include <vector>

#include "cuda_emulator.hpp"

namespace emulator {
namespace {

struct UserObject {
  void* pointer;
  CUhostFn gone;
};

struct Node {
  std::size_t row = 0;
  std::function<void()> work;
  std::vector<std::size_t> after;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<UserObject*> objects;
  std::size_t rows = 0;
  ~Graph() {
    for (UserObject* object : objects) object->gone(object->pointer), delete object;
  }
};
// What CUgraph and CUgraphExec point to.
using Handle = std::shared_ptr<Graph>;

void replay(const Graph& graph) {
  std::vector<std::atomic<bool>> done(graph.nodes.size());
  std::vector<std::thread> rows;
  for (std::size_t row = 0; row < graph.rows; ++row) {
    rows.emplace_back([&, row] {
      for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
        const Node& node = graph.nodes[i];
        if (node.row != row) continue;
        for (const std::size_t before : node.after) wait_until([&] { return done[before].load(); });
        if (node.work) node.work();
        done[i].store(true);
      }
    });
  }
  for (auto& row : rows) row.join();
}

std::uint64_t next_capture = 1;
std::map<std::uint64_t, Capture*> captures;
std::mutex captures_mutex;

}  // namespace

class Capture {
 public:
  explicit Capture(Stream& origin) : handle(new Handle(std::make_shared<Graph>())) {
    {
      const std::lock_guard lock(captures_mutex);
      number = next_capture++;
      captures[number] = this;
    }
    join(origin);
  }
  void end() {
    for (const auto& [stream, row] : rows_) stream->capture = nullptr;
    const std::lock_guard lock(captures_mutex);
    captures.erase(number);
  }
  void join(Stream& stream) {
    if (stream.capture == this) return;
    stream.capture = this;
    rows_[&stream] = graph().rows++;
    append(stream, nullptr);
  }
  void append(Stream& stream, std::function<void()> work, const std::vector<std::size_t>& after = {}) {
    graph().nodes.push_back({rows_.at(&stream), std::move(work), after});
    last_[&stream] = graph().nodes.size() - 1;
  }
  [[nodiscard]] std::size_t last(Stream& stream) const { return last_.at(&stream); }
  [[nodiscard]] Graph& graph() const { return **handle; }

  Handle* handle;
  std::uint64_t number = 0;

 private:
  std::map<Stream*, std::size_t> rows_;
  std::map<Stream*, std::size_t> last_;
};

void add(Stream& stream, std::function<void()> work) {
  if (stream.capture != nullptr) stream.capture->append(stream, std::move(work));
  else stream.add(std::move(work));
}

void record(Event& event, Stream& stream) {
  if (stream.capture != nullptr) {
    event.capture = stream.capture->number;
    event.node = stream.capture->last(stream);
    return;
  }
  event.capture = 0;
  stream.add([flag = event.again()] { flag->store(true); });
}

void wait(Stream& stream, Event& event) {
  if (event.capture != 0) {
    Capture* capture = nullptr;
    {
      const std::lock_guard lock(captures_mutex);
      const auto found = captures.find(event.capture);
      if (found != captures.end()) capture = found->second;
    }
    if (capture == nullptr) return;  // of a capture that has ended
    capture->join(stream);
    capture->append(stream, nullptr, {event.node});
    return;
  }
  add(stream, [flag = event.last()] { wait_until([&] { return flag->load(); }); });
}

}  // namespace emulator

#define EXPORT extern "C" __attribute__((visibility("default"))) CUresult

using emulator::Handle;
using emulator::Stream;

EXPORT cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
  new emulator::Capture(*reinterpret_cast<Stream*>(stream));
  return CUDA_SUCCESS;
}
EXPORT cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  emulator::Capture* capture = reinterpret_cast<Stream*>(stream)->capture;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  capture->end();
  *graph = reinterpret_cast<CUgraph>(capture->handle);
  delete capture;
  return CUDA_SUCCESS;
}
EXPORT cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph, const CUgraphNode**, std::size_t*) {
  const emulator::Capture* capture = reinterpret_cast<Stream*>(stream)->capture;
  *status = capture != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  if (capture == nullptr) return CUDA_SUCCESS;
  if (id != nullptr) *id = capture->number;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(capture->handle);
  return CUDA_SUCCESS;
}
EXPORT cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  *exec = reinterpret_cast<CUgraphExec>(new Handle(*reinterpret_cast<Handle*>(graph)));
  return CUDA_SUCCESS;
}
EXPORT cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  reinterpret_cast<Stream*>(stream)->add([graph = *reinterpret_cast<Handle*>(exec)] { emulator::replay(*graph); });
  return CUDA_SUCCESS;
}
EXPORT cuGraphDestroy(CUgraph graph) { return delete reinterpret_cast<Handle*>(graph), CUDA_SUCCESS; }
EXPORT cuGraphExecDestroy(CUgraphExec exec) { return delete reinterpret_cast<Handle*>(exec), CUDA_SUCCESS; }
EXPORT cuUserObjectCreate(CUuserObject* object, void* pointer, CUhostFn gone, unsigned, unsigned) {
  return *object = reinterpret_cast<CUuserObject>(new emulator::UserObject{pointer, gone}), CUDA_SUCCESS;
}
EXPORT cuUserObjectRelease(CUuserObject object, unsigned) {
  auto* one = reinterpret_cast<emulator::UserObject*>(object);
  return one->gone(one->pointer), delete one, CUDA_SUCCESS;
}
// Always with CU_GRAPH_USER_OBJECT_MOVE here.
EXPORT cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned, unsigned) {
  (*reinterpret_cast<Handle*>(graph))->objects.push_back(reinterpret_cast<emulator::UserObject*>(object));
  return CUDA_SUCCESS;
}
