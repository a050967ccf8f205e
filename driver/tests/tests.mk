# Included by ../Makefile.
CORE := $(wildcard $(HERE)src/core/*.c)
CORE_HEADERS := $(wildcard $(HERE)src/core/*.h $(HERE)include/uapi/linux/*.h)
UNIT := $(wildcard $(HERE)tests/unit/test_*.c)
VM := $(wildcard $(HERE)tests/vm/*.c)
VM_HEADERS := $(wildcard $(HERE)tests/vm/*.h) $(HERE)include/uapi/linux/stepccl_dma.h
SAN := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer

tools: $(OUT)/tools/dma-test $(OUT)/tools/stepccl-dma

$(OUT)/tools/dma-test: $(VM) $(VM_HEADERS)
	mkdir -p $(@D)
	$(CC) $(WARN) -O2 -g $(INC) -static -pthread -o $@ $(VM)

$(OUT)/tools/stepccl-dma: $(wildcard $(HERE)tools/*.[ch]) $(HERE)include/uapi/linux/stepccl_dma.h
	mkdir -p $(@D)
	$(CC) $(WARN) -O2 -g $(INC) -static -o $@ $(wildcard $(HERE)tools/*.c)

# The interface must be usable from C and C++ alone.
$(OUT)/unit/header.ok: $(HERE)include/uapi/linux/stepccl_dma.h
	mkdir -p $(@D)
	echo '#include <linux/stepccl_dma.h>' | $(CC) $(WARN) $(INC) -fsyntax-only -x c -
	echo '#include <linux/stepccl_dma.h>' | $(CXX) -std=c++20 -Wall -Wextra -Wpedantic -Werror $(INC) -fsyntax-only -x c++ -
	touch $@

$(OUT)/unit/core-test: $(UNIT) $(CORE) $(CORE_HEADERS) $(HERE)tests/unit/unit.h
	mkdir -p $(@D)
	$(CC) $(WARN) -O1 -g $(SAN) $(INC) -I$(HERE)src -o $@ $(UNIT) $(CORE)

unit: $(OUT)/unit/header.ok $(OUT)/unit/core-test
	$(OUT)/unit/core-test

$(OUT)/unit/fuzz-core: $(HERE)tests/unit/fuzz_core.c $(CORE) $(CORE_HEADERS)
	mkdir -p $(@D)
	$(CLANG) -std=gnu11 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
		$(INC) -I$(HERE)src -o $@ $< $(CORE)

fuzz: $(OUT)/unit/fuzz-core
	mkdir -p $(OUT)/unit/corpus
	$(OUT)/unit/fuzz-core -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1 $(OUT)/unit/corpus
