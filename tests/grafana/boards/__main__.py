from tests.grafana.boards import DIRECTORY, dashboards, text

for name, board in dashboards().items():
    (DIRECTORY / f"{name}.json").write_text(text(board))
