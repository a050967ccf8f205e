# SPDX-License-Identifier: Apache-2.0
"""
The operations that torch.distributed asks of a backend, for CPU and CUDA tensors. Mixed into the classes of
_process_group.py. Names and argument lists are torch's (ProcessGroup.hpp there). Every method checks what it is given
(StepcclError R101, R103), starts the operation and returns its handle.
"""
from __future__ import annotations

from ctypes import c_size_t
from typing import Any, Sequence

import torch

from ._communicator import HIGH, Operation, gpu
from ._errors import bad_argument, unsupported
from ._launching import Launching, Tensors, timeout_ms
from ._types import check_alike, check_elements, check_tensor, lie_in_row, movement, offsets, one, reduction
from ._work import Copies, DeviceWork, HostWork


class Collectives(Launching):
    """The operations; how they start is Launching's."""

    # -- one tensor, in place --------------------------------------------------

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Any:
        """Every tensor = its reduction over the ranks. A list is started as one group."""
        if isinstance(tensors, torch.Tensor):
            tensors = [tensors]
        if not tensors:
            raise bad_argument("tensors is an empty list")
        operations: list[Operation] = []
        before: list[tuple[torch.Tensor, torch.Tensor]] = []
        for tensor in tensors:
            check_tensor(tensor, "tensor", dense=True)
            datatype, redop, factor = reduction(opts, tensor.dtype)
            if factor is not None:
                before.append((tensor, tensor * factor))
            address = tensor.data_ptr()
            operations.append(("all_reduce", address, address, tensor.numel(), datatype, redop))
        if len(tensors) > 1:
            check_alike([tensor for tensor in tensors], "tensors")
        return self._launch(operations, tensors, list(tensors), opts, before)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Any:
        """The tensor of opts.rootRank to all."""
        tensor = check_tensor(one(tensors, "tensors"), "tensor", dense=True)
        datatype, count = movement(tensor.dtype, tensor.numel(), tensor.element_size())
        address = tensor.data_ptr()
        operation = ("broadcast", address, address, count, datatype, self._root(opts))
        return self._launch([operation], [tensor], [tensor], opts)

    def reduce(self, tensors: Tensors, opts: Any = None) -> Any:
        """The reduction into the tensor of opts.rootRank; elsewhere the tensor stays as it is."""
        tensor = check_tensor(one(tensors, "tensors"), "tensor", dense=True)
        datatype, redop, factor = reduction(opts, tensor.dtype)
        source = tensor if factor is None else tensor * factor
        root = self._root(opts)
        target = tensor.data_ptr() if self.communicator.rank == root else (0 if tensor.is_cuda else tensor.data_ptr())
        operation = ("reduce", source.data_ptr(), target, tensor.numel(), datatype, redop, root)
        return self._launch([operation], [tensor, source], [tensor], opts)

    # -- gathering ---------------------------------------------------------------

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        """output = the inputs of all ranks in their order."""
        operation = self._gather_operation(output, input)
        return self._launch([operation], [input, output], [output], opts)

    def _gather_operation(self, output: torch.Tensor, input: torch.Tensor) -> Operation:
        check_tensor(input, "input")
        check_tensor(output, "output")
        check_alike((input, output), "input and output")
        check_elements(output, "output", input.numel() * self.communicator.world)
        datatype, count = movement(input.dtype, input.numel(), input.element_size())
        return ("all_gather", input.data_ptr(), output.data_ptr(), count, datatype)

    def allgather_into_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        if len(outputs) != len(inputs) or not inputs:
            raise bad_argument(f"there are {len(outputs)} outputs for {len(inputs)} inputs")
        operations = [self._gather_operation(output, input) for output, input in zip(outputs, inputs)]
        return self._launch(operations, [*inputs, *outputs], list(outputs), opts)

    def allgather(self, output_lists: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        """outputs[r] = the input of rank r; sizes may differ between ranks."""
        input = check_tensor(one(inputs, "inputs"), "input")
        outputs = self._list_of_world(one(output_lists, "output_lists"), "outputs", input)
        if all(output.numel() == input.numel() for output in outputs):
            datatype, count = movement(input.dtype, input.numel(), input.element_size())
            flat, copies = self._row(outputs)
            operation = ("all_gather", input.data_ptr(), flat.data_ptr(), count, datatype)
            return self._launch([operation], [input, flat, *outputs], [list(outputs)], opts, after=copies)
        check_elements(outputs[self.communicator.rank], "the output of this rank", input.numel())
        operations: list[Operation] = []
        for rank, output in enumerate(outputs):
            datatype, count = movement(output.dtype, output.numel(), output.element_size())
            source = input if rank == self.communicator.rank else output
            operations.append(("broadcast", source.data_ptr(), output.data_ptr(), count, datatype, rank))
        return self._launch(operations, [input, *outputs], [list(outputs)], opts)

    def allgather_coalesced(self, output_lists: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        """outputs[r][i] = inputs[i] of rank r, as torch lays these lists out."""
        flats: list[torch.Tensor] = []
        copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        operations: list[Operation] = []
        for number, input in enumerate(inputs):
            check_tensor(input, "input")
            outputs = self._list_of_world([row[number] for row in output_lists], "outputs", input)
            for output in outputs:
                check_elements(output, "output", input.numel())
            flat, own = self._row(outputs)
            datatype, count = movement(input.dtype, input.numel(), input.element_size())
            operations.append(("all_gather", input.data_ptr(), flat.data_ptr(), count, datatype))
            flats.append(flat)
            copies.extend(own)
        if not operations:
            raise bad_argument("inputs is an empty list")
        kept = [*inputs, *flats, *(tensor for row in output_lists for tensor in row)]
        return self._launch(operations, kept, [list(row) for row in output_lists], opts, after=copies)

    def gather(self, output_lists: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        """On opts.rootRank outputs[r] = the input of rank r; elsewhere output_lists is empty."""
        input = check_tensor(one(inputs, "inputs"), "input")
        root = self._root(opts)
        datatype, count = movement(input.dtype, input.numel(), input.element_size())
        if self.communicator.rank != root:
            if output_lists and output_lists[0]:
                raise bad_argument("output_lists must be empty on a rank that is not the root")
            return self._launch([("gather", input.data_ptr(), 0, count, datatype, root)], [input], [], opts)
        outputs = self._list_of_world(one(output_lists, "output_lists"), "outputs", input)
        for output in outputs:
            check_elements(output, "output", input.numel())
        flat, copies = self._row(outputs)
        operation = ("gather", input.data_ptr(), flat.data_ptr(), count, datatype, root)
        return self._launch([operation], [input, flat, *outputs], [list(outputs)], opts, after=copies)

    # -- scattering ----------------------------------------------------------------

    def scatter(self, outputs: Tensors, input_lists: Sequence[Tensors], opts: Any = None) -> Any:
        """output of rank r = inputs[r] of opts.rootRank; elsewhere input_lists is empty."""
        output = check_tensor(one(outputs, "outputs"), "output")
        root = self._root(opts)
        datatype, count = movement(output.dtype, output.numel(), output.element_size())
        if self.communicator.rank != root:
            if input_lists and input_lists[0]:
                raise bad_argument("input_lists must be empty on a rank that is not the root")
            return self._launch([("scatter", 0, output.data_ptr(), count, datatype, root)], [output], [output], opts)
        inputs = self._list_of_world(one(input_lists, "input_lists"), "inputs", output)
        for input in inputs:
            check_elements(input, "input", output.numel())
        flat, copies = self._row(inputs)
        operation = ("scatter", flat.data_ptr(), output.data_ptr(), count, datatype, root)
        return self._launch([operation], [output, flat, *inputs], [output], opts, before=[(target, source) for source, target in copies])

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        """output = this rank's part of the reduction of the inputs."""
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        if len(outputs) != len(inputs) or not inputs:
            raise bad_argument(f"there are {len(outputs)} outputs for {len(inputs)} inputs")
        operations: list[Operation] = []
        kept = [*inputs, *outputs]
        for output, input in zip(outputs, inputs):
            check_tensor(input, "input")
            check_tensor(output, "output")
            check_alike((input, output), "input and output")
            check_elements(input, "input", output.numel() * self.communicator.world)
            datatype, redop, factor = reduction(opts, input.dtype)
            if factor is not None:
                input = input * factor
                kept.append(input)
            operations.append(("reduce_scatter", input.data_ptr(), output.data_ptr(), output.numel(), datatype, redop))
        return self._launch(operations, kept, list(outputs), opts)

    def reduce_scatter(self, outputs: Tensors, input_lists: Sequence[Tensors], opts: Any = None) -> Any:
        """output of rank r = the reduction of inputs[r]; sizes may differ between ranks."""
        output = check_tensor(one(outputs, "outputs"), "output")
        inputs = self._list_of_world(one(input_lists, "input_lists"), "inputs", output)
        datatype, redop, factor = reduction(opts, output.dtype)
        if factor is not None:
            inputs = [input * factor for input in inputs]
        if all(input.numel() == output.numel() for input in inputs):
            flat, copies = self._row(inputs)
            operation = ("reduce_scatter", flat.data_ptr(), output.data_ptr(), output.numel(), datatype, redop)
            return self._launch([operation], [output, flat, *inputs], [output], opts, before=[(target, source) for source, target in copies])
        rank = self.communicator.rank
        check_elements(inputs[rank], "the input for this rank", output.numel())
        # Only the root of a reduction is written to; the others name a place all the same.
        operations: list[Operation] = [
            ("reduce", input.data_ptr(), output.data_ptr() if root == rank else (0 if input.is_cuda else input.data_ptr()), input.numel(), datatype, redop, root)
            for root, input in enumerate(inputs)
        ]
        return self._launch(operations, [output, *inputs], [output], opts)

    # -- all to all ------------------------------------------------------------------

    def alltoall_base(self, output: torch.Tensor, input: torch.Tensor, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any = None) -> Any:
        """Row blocks of input to the ranks in order; splits in rows, or empty for equal ones."""
        check_tensor(input, "input")
        check_tensor(output, "output")
        check_alike((input, output), "input and output")
        world = self.communicator.world
        if not output_splits and not input_splits:
            check_elements(output, "output", input.numel())
            if input.numel() % world:
                raise bad_argument(f"input has {input.numel()} elements, which {world} ranks can't share equally: pass splits")
            datatype, count = movement(input.dtype, input.numel() // world, input.element_size())
            operation: Operation = ("all_to_all", input.data_ptr(), output.data_ptr(), count, datatype)
        else:
            sent, received = self._split(input, input_splits, "input"), self._split(output, output_splits, "output")
            datatype, scale = movement(input.dtype, 1, input.element_size())
            arrays = [(c_size_t * world)(*(number * scale for number in numbers)) for numbers in (sent, offsets(sent), received, offsets(received))]
            operation = ("all_to_all_v", input.data_ptr(), arrays[0], arrays[1], output.data_ptr(), arrays[2], arrays[3], datatype)
        return self._launch([operation], [input, output], [output], opts)

    def _split(self, tensor: torch.Tensor, splits: Sequence[int], name: str) -> list[int]:
        """Elements for each rank from a split in rows."""
        world, rows = self.communicator.world, tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % world:
                raise bad_argument(f"{name} has {rows} rows, which {world} ranks can't share equally: pass splits")
            splits = [rows // world] * world
        if len(splits) != world or any(split < 0 for split in splits) or sum(splits) != rows:
            raise bad_argument(f"{name} splits are {list(splits)}, and must be {world} numbers from 0 that add up to its {rows} rows")
        return [split * (tensor.numel() // rows if rows else 0) for split in splits]

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """outputs[r] = inputs[this rank] of rank r; sizes may differ."""
        world, rank = self.communicator.world, self.communicator.rank
        if len(outputs) != world or len(inputs) != world:
            raise bad_argument(f"there are {len(inputs)} inputs and {len(outputs)} outputs for {world} ranks")
        for name, tensors in (("input", inputs), ("output", outputs)):
            for tensor in tensors:
                check_tensor(tensor, name)
        check_alike([*inputs, *outputs], "inputs and outputs")
        check_elements(outputs[rank], "the output from this rank itself", inputs[rank].numel())
        operations: list[Operation] = []
        for step in range(1, world):
            to, source = (rank + step) % world, (rank - step) % world
            datatype, count = movement(inputs[to].dtype, inputs[to].numel(), inputs[to].element_size())
            operations.append(("send", inputs[to].data_ptr(), count, datatype, to))
            datatype, count = movement(outputs[source].dtype, outputs[source].numel(), outputs[source].element_size())
            operations.append(("recv", outputs[source].data_ptr(), count, datatype, source))
        own = [(outputs[rank].view(-1), inputs[rank].view(-1))]
        return self._launch(operations, [*inputs, *outputs], list(outputs), opts, before=own)

    # -- between two ranks -------------------------------------------------------------

    def send(self, tensors: Tensors, peer: int, tag: int = 0) -> Any:
        return self._message("send", tensors, peer, tag)

    def recv(self, tensors: Tensors, peer: int, tag: int = 0) -> Any:
        return self._message("recv", tensors, peer, tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Any:
        """Refused: messages are matched in order for each pair of ranks."""
        raise unsupported("receiving from any rank is not possible: name the source")

    def _message(self, name: str, tensors: Tensors, peer: int, tag: int) -> Any:
        tensor = check_tensor(one(tensors, "tensors"), "tensor", dense=True)
        if tag != 0:
            raise unsupported(f"tag {tag}: messages between two ranks are matched by their order alone: leave the tag 0")
        if not 0 <= peer < self.communicator.world or peer == self.communicator.rank:
            raise bad_argument(f"rank {peer} is not another rank of this group of {self.communicator.world}")
        datatype, count = movement(tensor.dtype, tensor.numel(), tensor.element_size())
        # A receive that was posted early must not hold back the collectives that come before its message.
        return self._launch([(name, tensor.data_ptr(), count, datatype, peer)], [tensor], [tensor], priority=HIGH)

    # -- everything else ---------------------------------------------------------------

    def barrier(self, opts: Any = None) -> Any:
        """All ranks have come here. On a group with a GPU: their current streams too, and the host waits for them."""
        device_ids = list(getattr(opts, "device_ids", None) or [])
        if device_ids and self.communicator.device is None:
            self.communicator.attach(gpu(f"cuda:{device_ids[0]}"))
        self._sequence += 1
        device = self.communicator.device
        if device is not None:
            stream = torch.cuda.current_stream(device)
            if torch.cuda.is_current_stream_capturing():
                self.communicator.enqueue([("barrier",)], stream.cuda_stream)
                return DeviceWork(self.communicator, [], [], None)
            stream.synchronize()
            self.communicator.check_engine()
        requests = self.communicator.start([("barrier",)], timeout_ms(opts))
        return self._keep(HostWork(self.communicator, requests, (), (), [], self._completer))

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier on host memory; its error names a rank that did not come."""
        work = HostWork(self.communicator, self.communicator.start([("barrier",)]), (), (), [], self._completer)
        work.wait(timeout)

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        """Operations that this rank has started."""
        return self._sequence

    # -- helpers -------------------------------------------------------------------------

    def _root(self, opts: Any) -> int:
        root = getattr(opts, "rootRank", 0)
        if not 0 <= root < self.communicator.world:
            raise bad_argument(f"the root {root} is not a rank of this group of {self.communicator.world}")
        return int(root)

    def _list_of_world(self, tensors: Any, name: str, like: torch.Tensor) -> list[torch.Tensor]:
        """A checked list with a tensor for each rank, of the device and type of `like`."""
        if not isinstance(tensors, (list, tuple)) or len(tensors) != self.communicator.world:
            raise bad_argument(f"{name} must be a list with a tensor for each of the {self.communicator.world} ranks")
        for tensor in tensors:
            check_tensor(tensor, name)
        check_alike([like, *tensors], name)
        return list(tensors)

    @staticmethod
    def _row(tensors: list[torch.Tensor]) -> tuple[torch.Tensor, Copies]:
        """
        One block of memory for tensors of one size, and the copies (tensor, its place) that are needed where they do not lie one
        behind the other already.
        """
        if lie_in_row(tensors):
            return tensors[0], ()
        flat = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype, device=tensors[0].device)
        return flat, list(zip((tensor.view(-1) for tensor in tensors), flat.chunk(len(tensors)) if flat.numel() else tensors))
