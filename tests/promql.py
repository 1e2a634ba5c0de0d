"""What an expression of PromQL asks for."""

from typing import Any

import promql_parser


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """Return all selectors of the expression, those of ranges too. Raises ValueError where it is no PromQL."""
    found: list[promql_parser.VectorSelector] = []

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        elif isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found
