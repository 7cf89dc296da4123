/* SPDX-License-Identifier: GPL-2.0 */
/* device.h includes this file and needs nothing of it for its structures. */
