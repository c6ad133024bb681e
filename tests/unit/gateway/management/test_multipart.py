"""The parts of a request that management handlers read."""

from __future__ import annotations

import time

import pytest

from fieldbrook.core.errors import BadRequestError
from fieldbrook.gateway.management.multipart import parse_form
from fieldbrook.gateway.replies import error_json


def test_an_upload_whose_content_type_is_long_is_refused_before_it_is_read() -> None:
    before = time.process_time()
    with pytest.raises(BadRequestError) as caught:
        parse_form('multipart/form-data; boundary="' + ";" * (1 << 20), b"")
    assert "512 characters" in error_json(caught.value, "1").decode()
    assert time.process_time() - before < 5


def test_a_boundary_of_the_longest_allowed_kind_is_read() -> None:
    mark = "b" * 70
    part = f'--{mark}\r\nContent-Disposition: form-data; name="info"\r\n\r\n{{}}\r\n--{mark}--\r\n'
    form = parse_form(f'multipart/form-data; charset=utf-8; boundary="{mark}"', part.encode())
    assert form.info == b"{}"
