/* SPDX-License-Identifier: GPL-2.0 */
/* Input of bindgen for kapi::bindings: headers that the kernel's own crate lacks. */
#include <net/devlink.h>
