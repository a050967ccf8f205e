/* SPDX-License-Identifier: Apache-2.0 */
	.section .rodata
	.global stepccl_fatbin
	.hidden stepccl_fatbin
	.balign 16
stepccl_fatbin:
	.incbin STEPCCL_FATBIN
	.byte 0
	.section .note.GNU-stack, "", %progbits
